//! Errors that last, and failures that a test plants.

use super::*;

/// All that a failed context still answers, after the query of a stream has failed.
fn failed(code: i32, stream: Handle, context: Handle) {
    let until = std::time::Instant::now() + Duration::from_secs(10);
    let mut query = 600;
    while query == 600 && std::time::Instant::now() < until {
        query = call!(cuStreamQuery(stream));
    }
    assert_eq!(query, code);
    assert_eq!(call!(cuCtxSynchronize()), code);
    assert_eq!(call!(cuMemAlloc_v2(Out::of(&mut 0), 4)), code);
    assert_eq!(call!(cuStreamCreate(Out::of(&mut 0), 1)), code);
    ok(call!(cuCtxSetCurrent(context)));
}

processes! {
    fn the_fault_of_a_kernel_lasts[] {
        let context = open(0);
        let ((module, store), stream) = (kernel("store"), stream());
        let (place, event) = (alloc(4), event());
        begin(stream);
        let released = operation(stream, || 0);
        let exec = end(stream);
        ok(launch(store, &[8, 1], stream));
        failed(700, stream, context);
        // Objects can be given up, by the same error.
        assert_eq!(call!(cuGraphExecDestroy(exec)), 700);
        released.wait();
        assert_eq!(call!(cuEventDestroy_v2(event)), 700);
        assert_eq!(call!(cuMemFree_v2(place)), 700);
        assert_eq!(call!(cuModuleUnload(module)), 700);
        assert_eq!(call!(cuDevicePrimaryCtxRelease_v2(0)), 700);
    } |report| {
        assert_eq!(report.len(), 1, "{report:#?}");
        assert!(report[0].starts_with("fault: "), "{report:#?}");
        assert!(report[0].ends_with("(700 CUDA_ERROR_ILLEGAL_ADDRESS)"), "{report:#?}");
    };

    fn the_failure_of_an_operation_lasts[] {
        let context = open(0);
        let stream = stream();
        let gate = hold(stream);
        operation(stream, || 719);
        let later = operation(stream, || panic!("nothing runs any more"));
        gate.open();
        failed(719, stream, context);
        later.wait();
    } found(&["fault: operation failed (719 CUDA_ERROR_LAUNCH_FAILED)"]);

    fn memory_that_a_graph_needs_is_missed[] {
        let context = open(0);
        let (stream, host, place) = (stream(), pinned(1), alloc(4));
        begin(stream);
        ok(call!(cuMemcpyHtoDAsync_v2(place, host.cast(), 4, stream)));
        let exec = end(stream);
        launch_graph(exec, stream);
        synchronize(stream);
        ok(call!(cuMemFreeHost(host.cast())));
        launch_graph(exec, stream);
        failed(700, stream, context);
    } found(&["fault: a copy reaches memory that was given up (700 "]);

    fn the_call_that_was_named_fails["DRIVER_PLANT" = "cuMemAlloc_v2:2=2,cuEventRecord:1=700"] {
        let context = open(0);
        let (stream, first) = (stream(), alloc(4));
        assert_eq!(call!(cuMemAlloc_v2(Out::of(&mut 0), 4)), 2);
        free(alloc(4));
        free(first);
        let event = event();
        assert_eq!(call!(cuEventRecord(event, stream)), 700);
        failed(700, stream, context);
    } clean;

    fn the_kernel_that_was_named_hangs["DRIVER_PLANT" = "hang:store:2"] {
        open(0);
        let ((_, store), place, stream) = (kernel("store"), alloc(4), stream());
        ok(launch(store, &[place, 1], stream));
        synchronize(stream);
        ok(launch(store, &[place, 2], stream));
        thread::sleep(Duration::from_millis(20));
        assert_eq!(call!(cuStreamQuery(stream)), 600);
        // The end of the process does not wait for it.
    } clean;

    fn the_device_is_lost_after_so_many_kernels["DRIVER_PLANT" = "lost:2"] {
        let context = open(0);
        let ((_, store), place, stream) = (kernel("store"), alloc(4), stream());
        for value in 0..2 {
            ok(launch(store, &[place, value], stream));
            assert_eq!(u64::from(read(place, stream)), value);
        }
        ok(launch(store, &[place, 1], stream));
        failed(719, stream, context);
    } clean;
}

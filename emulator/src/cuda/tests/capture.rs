//! The rules of captures, each with its error number.

use super::*;

/// Runs on another thread, with the same context.
fn elsewhere<T: Send>(context: Handle, body: impl FnOnce() -> T + Send) -> T {
    let body = || {
        ok(call!(cuCtxSetCurrent(context)));
        body()
    };
    thread::scope(|scope| scope.spawn(body).join().expect("no panic"))
}

fn query(stream: Handle) -> i32 {
    call!(cuStreamQuery(stream))
}

fn status(stream: Handle) -> i32 {
    made(|out| call!(cuStreamIsCapturing(stream, out)))
}

processes! {
    fn calls_that_could_wait_are_refused_on_the_thread_that_captures[] {
        open(0);
        let ([captured, other], event) = ([stream(), stream()], event());
        let ((module, _), place, host) = (kernel("store"), alloc(4), pinned(1));
        let (mut number, mut address) = (0, ptr::null_mut());
        let text = CString::new(PTX).expect("no zero");
        let mut calls: [Box<dyn FnMut() -> i32>; 12] = [
            Box::new(|| call!(cuMemAlloc_v2(Out::of(&mut number), 4))),
            Box::new(|| call!(cuMemFree_v2(place))),
            Box::new(|| call!(cuMemHostAlloc(Out::of(&mut address), 4, 0))),
            Box::new(|| call!(cuMemFreeHost(host.cast()))),
            Box::new(|| call!(cuModuleUnload(module))),
            Box::new(|| call!(cuModuleLoadData(Out::of(&mut 0), text.as_ptr().cast()))),
            Box::new(|| call!(cuCtxSynchronize())),
            Box::new(move || call!(cuStreamSynchronize(other))),
            Box::new(move || call!(cuStreamQuery(other))),
            Box::new(move || call!(cuEventSynchronize(event))),
            Box::new(move || call!(cuEventQuery(event))),
            Box::new(move || call!(cuStreamQuery(captured))),
        ];
        for (i, call) in calls.iter_mut().enumerate() {
            begin(captured);
            assert_eq!(status(captured), 1);
            assert_eq!(call(), 900, "call {i}");
            assert_eq!(status(captured), 2);
            assert_eq!(call(), 901, "call {i} again");
            assert_eq!(call!(cuEventRecord(event, captured)), 901);
            assert_eq!(end_fails(captured), 901);
            assert_eq!(status(captured), 0);
        }
        drop(calls);
        free(place);
        ok(call!(cuMemFreeHost(host.cast())));
        ok(call!(cuModuleUnload(module)));
        ok(call!(cuEventDestroy_v2(event)));
        destroy(&[captured, other]);
        close(0);
    } |report| assert_eq!(report.len(), 12, "{report:#?}");

    fn other_threads_go_on_beside_a_capture[] {
        let context = open(0);
        let ([captured, other], event) = ([stream(), stream()], event());
        ok(call!(cuEventRecord(event, other)));
        begin(captured);
        elsewhere(context, || {
            free(alloc(4));
            assert_eq!(call!(cuEventSynchronize(event)), 0);
            synchronize(other);
        });
        // These are legal on the thread itself.
        let new = super::event();
        ok(call!(cuEventDestroy_v2(new)));
        destroy(&[stream()]);
        ok(call!(cuCtxSetCurrent(context)));
        assert_eq!(status(captured), 1);
        ok(call!(cuGraphExecDestroy(end(captured))));
        ok(call!(cuEventDestroy_v2(event)));
        destroy(&[captured, other]);
        close(0);
    } clean;

    fn no_thread_waits_for_a_captured_stream_or_its_context[] {
        let context = open(0);
        let captured = stream();
        let calls: [fn(Handle) -> i32; 3] = [
            query,
            |stream| call!(cuStreamSynchronize(stream)),
            |_| call!(cuCtxSynchronize()),
        ];
        for call in calls {
            begin(captured);
            assert_eq!(elsewhere(context, || call(captured)), 900);
            assert_eq!(end_fails(captured), 901);
        }
        destroy(&[captured]);
        close(0);
    } found(&["misuse: cuStreamQuery: ", "misuse: cuStreamSynchronize: ",
        "misuse: cuCtxSynchronize: "]);

    fn an_event_of_a_capture_is_no_point_in_time[] {
        let context = open(0);
        let (captured, event) = (stream(), event());
        let calls: [fn(Handle) -> i32; 3] = [
            |event| call!(cuEventQuery(event)),
            |event| call!(cuEventSynchronize(event)),
            |event| call!(cuEventElapsedTime(Out::of(&mut 0.0), event, event)),
        ];
        for call in calls {
            begin(captured);
            ok(call!(cuEventRecord(event, captured)));
            assert_eq!(elsewhere(context, || call(event)), 907);
            assert_eq!(end_fails(captured), 901);
            assert_eq!(call(event), 907, "after the end, too");
        }
        assert_eq!(call!(cuStreamWaitEvent(captured, event, 0)), 907);
        // Recorded again, it is.
        ok(call!(cuEventRecord(event, captured)));
        ok(call!(cuEventSynchronize(event)));
        ok(call!(cuEventDestroy_v2(event)));
        destroy(&[captured]);
        close(0);
    } |report| assert_eq!(report.len(), 7, "{report:#?}");

    fn the_default_stream_is_refused[] {
        open(0);
        let (captured, event) = (stream(), event());
        for default in 0..3 {
            assert_eq!(call!(cuEventRecord(event, default)), 400);
        }
        begin(captured);
        assert_eq!(call!(cuEventRecord(event, 0)), 906);
        assert_eq!(end_fails(captured), 901);
        ok(call!(cuEventDestroy_v2(event)));
        destroy(&[captured]);
        close(0);
    } |report| assert_eq!(report.len(), 4, "{report:#?}");

    fn work_outside_of_a_capture_is_not_waited_for_in_it[] {
        open(0);
        let ([captured, other], outside) = ([stream(), stream()], event());
        ok(call!(cuEventRecord(outside, other)));
        let never = event();
        for event in [outside, never] {
            begin(captured);
            assert_eq!(call!(cuStreamWaitEvent(captured, event, 0)), 905);
            assert_eq!(end_fails(captured), 901);
            ok(call!(cuEventDestroy_v2(event)));
        }
        destroy(&[captured, other]);
        close(0);
    } found(&["misuse: cuStreamWaitEvent: "; 2]);

    fn captures_are_not_merged[] {
        open(0);
        let ([first, second], event) = ([stream(), stream()], event());
        begin(first);
        begin(second);
        ok(call!(cuEventRecord(event, first)));
        assert_eq!(call!(cuStreamWaitEvent(second, event, 0)), 902);
        assert_eq!([end_fails(first), end_fails(second)], [901; 2]);
        ok(call!(cuEventDestroy_v2(event)));
        destroy(&[first, second]);
        close(0);
    } found(&["misuse: cuStreamWaitEvent: "]);

    fn a_capture_ends_where_and_by_whom_it_began[] {
        let context = open(0);
        let [first, second] = [stream(), stream()];
        assert_eq!(end_fails(first), 401, "it is not captured");
        begin(first);
        order(first, second);
        assert_eq!(status(second), 1);
        assert_eq!(end_fails(second), 903);
        assert_eq!(elsewhere(context, || end_fails(first)), 908);
        order(second, first);
        ok(call!(cuGraphExecDestroy(end(first))));
        assert_eq!(status(second), 0);
        destroy(&[first, second]);
        close(0);
    } |report| assert_eq!(report.len(), 3, "{report:#?}");

    fn every_fork_is_joined[] {
        open(0);
        let [first, second] = [stream(), stream()];
        let work: fn(Handle) = |stream| drop(operation(stream, || 0));
        for (i, enqueue) in [|_| (), work, work].into_iter().enumerate() {
            begin(first);
            order(first, second);
            enqueue(second);
            if i == 2 {
                // Joined too early.
                order(second, first);
                enqueue(second);
            }
            enqueue(first);
            assert_eq!(end_fails(first), 904);
            assert_eq!([status(first), status(second)], [0; 2]);
        }
        destroy(&[first, second]);
        close(0);
    } found(&[1, 2, 1].map(|count| {
        format!("misuse: cuStreamEndCapture: the first stream does not wait for {count} ")
    }));

    fn a_capture_begins_once_and_for_its_thread[] {
        open(0);
        let captured = stream();
        for other_mode in [0, 2] {
            assert_eq!(call!(cuStreamBeginCapture_v2(captured, other_mode)), 801);
        }
        begin(captured);
        assert_eq!(call!(cuStreamBeginCapture_v2(captured, 1)), 900);
        assert_eq!(end_fails(captured), 901);
        destroy(&[captured]);
        close(0);
    } |report| assert_eq!(report.len(), 3, "{report:#?}");

    fn what_no_graph_of_ours_holds_is_refused_in_a_capture[] {
        open(0);
        let ([captured, other], place) = ([stream(), stream()], alloc(4));
        begin(captured);
        let exec = end(captured);
        let value: *mut u32 = &mut 0;
        let mut calls: [Box<dyn FnMut() -> i32>; 4] = [
            Box::new(|| call!(cuGraphLaunch(exec, captured))),
            Box::new(|| call!(cuGraphUpload(exec, captured))),
            Box::new(|| {
                call!(cuMemcpyHtoDAsync_v2(place, value.cast(), 4, captured))
            }),
            Box::new(|| call!(cuMemcpyDtoHAsync_v2(value.cast(), place, 4, captured))),
        ];
        for call in &mut calls {
            begin(captured);
            assert_eq!(call(), 900);
            assert_eq!(end_fails(captured), 901);
        }
        drop(calls);
        // On another stream they are legal meanwhile.
        begin(captured);
        launch_graph(exec, other);
        ok(call!(cuGraphExecDestroy(exec)));
        ok(call!(cuGraphExecDestroy(end(captured))));
        free(place);
        destroy(&[captured, other]);
        close(0);
    } |report| assert_eq!(report.len(), 4, "{report:#?}");

    fn a_kernel_is_captured_with_its_parameters[] {
        open(0);
        let ((module, store), place, stream) = (kernel("store"), alloc(4), stream());
        write(place, 0, stream);
        synchronize(stream);
        begin(stream);
        let mut parameters = [place, 3];
        ok(launch(store, &parameters, stream));
        parameters[1] = 4;
        let exec = end(stream);
        assert_eq!(read(place, stream), 0, "a capture executes nothing");
        launch_graph(exec, stream);
        assert_eq!(read(place, stream), 3);
        assert_eq!(parameters[1], 4);
        ok(call!(cuGraphExecDestroy(exec)));
        ok(call!(cuModuleUnload(module)));
        free(place);
        destroy(&[stream]);
        close(0);
    } clean;

    fn a_captured_stream_that_is_destroyed_ends_its_capture[] {
        open(0);
        let [first, second] = [stream(), stream()];
        begin(first);
        order(first, second);
        destroy(&[first]);
        assert_eq!(status(second), 0);
        synchronize(second);
        destroy(&[second]);
        close(0);
    } found(&["misuse: cuStreamDestroy_v2: the stream is captured"]);
}

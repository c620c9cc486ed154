//! Devices, contexts and handles.

use super::*;

processes! {
    fn nothing_works_before_the_driver_is_started[] {
        let mut number = 0;
        ok(call!(cuDriverGetVersion(Out::of(&mut number))));
        assert_eq!(number, 12020);
        assert_eq!(call!(cuDeviceGetCount(Out::of(&mut number))), 3);
        assert_eq!(call!(cuStreamCreate(Out::of(&mut 0), 1)), 3);
        assert_eq!(driverCurrentDevice(), -1);
        ok(call!(cuInit(0)));
        ok(call!(cuDeviceGetCount(Out::of(&mut number))));
        assert_eq!(number, 1);
    } found(&["misuse: cuDeviceGetCount: before cuInit (3 CUDA_ERROR_NOT_INITIALIZED)",
        "misuse: cuStreamCreate: before cuInit"]);

    fn calls_are_traced_with_their_results[] {
        let path = env::temp_dir().join(format!("driver.trace.{}", std::process::id()));
        // SAFETY: no other thread of this process reads or writes variables now.
        unsafe { env::set_var("DRIVER_TRACE", &path) };
        ok(call!(cuInit(0)));
        assert_eq!(call!(cuDeviceGet(Out::of(&mut 0), 7)), 101);
        let trace = fs::read_to_string(&path).expect("a trace");
        fs::remove_file(&path).expect("a trace");
        assert_eq!(trace, "cuInit 0\ncuDeviceGet 101\n");
    } found(&["misuse: cuDeviceGet: "]);

    fn a_machine_may_have_no_gpu["DRIVER_GPUS" = ""] {
        assert_eq!(call!(cuInit(0)), 100);
    } clean;

    fn gpus_are_those_that_were_asked_for[
        "DRIVER_GPUS" = "A100,H200", "CUDA_VISIBLE_DEVICES" = "1", "DRIVER_MEMORY" = "1000000"
    ] {
        ok(call!(cuInit(0)));
        assert_eq!(call!(cuDeviceGet(Out::of(&mut 0), 1)), 101);
        let mut name = [7u8; 12];
        ok(call!(cuDeviceGetName(name.as_mut_ptr().cast(), 12, 0)));
        assert_eq!(&name, b"NVIDIA H200\0");
        ok(call!(cuDeviceGetName(name.as_mut_ptr().cast(), 4, 0)));
        assert_eq!(&name[..5], b"NVI\0I");
        let attribute = |number| made(|out| call!(cuDeviceGetAttribute(out, number, 0)));
        assert_eq!([16, 38, 75, 76, 97].map(attribute), [132, 60 << 20, 9, 0, 232_448]);
        assert_eq!(made(|out| call!(cuDeviceTotalMem_v2(out, 0))), 1_000_000);
        open(0);
        assert_eq!(call!(cuMemAlloc_v2(Out::of(&mut 0), 1_000_001)), 2);
        let place = alloc(400_000);
        let (mut free_bytes, mut total) = (0, 0);
        ok(call!(cuMemGetInfo_v2(Out::of(&mut free_bytes), Out::of(&mut total))));
        assert_eq!([free_bytes, total], [600_000, 1_000_000]);
        free(place);
        let (mut least, mut greatest) = (1, 1);
        ok(call!(cuCtxGetStreamPriorityRange(Out::of(&mut least), Out::of(&mut greatest))));
        assert_eq!([least, greatest], [0, -5]);
        let stream = made(|out| call!(cuStreamCreateWithPriority(out, 1, -9)));
        assert_eq!(made(|out| call!(cuStreamGetPriority(stream, out))), -5);
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuDeviceGet: there is no device 1 "]);

    fn errors_have_names_and_sentences[] {
        let text = |code| {
            let mut text = ptr::null();
            let result = call!(cuGetErrorString(code, Out::of(&mut text)));
            // SAFETY: null or a text of the driver's.
            let text = (!text.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(text) });
            (result, text.map(|text| text.to_str().expect("ASCII")))
        };
        assert_eq!(text(700), (0, Some("an illegal memory access was encountered")));
        assert_eq!(text(34_567), (1, None));
    } clean;

    fn a_context_is_current_on_a_thread["DRIVER_GPUS" = "A100,A100"] {
        ok(call!(cuInit(0)));
        assert_eq!(call!(cuStreamCreate(Out::of(&mut 0), 1)), 201);
        let [first, second] = [open(0), open(1)];
        assert_eq!(driverCurrentDevice(), 1);
        assert_eq!(made(|out| call!(cuCtxGetCurrent(out))), second);
        assert_eq!(made(|out| call!(cuCtxGetDevice(out))), 1);
        let other = thread::spawn(|| call!(cuCtxSynchronize())).join().expect("no panic");
        assert_eq!(other, 201);
        // The second reference keeps it.
        assert_eq!(made(|out| call!(cuDevicePrimaryCtxRetain(out, 1))), second);
        close(1);
        ok(call!(cuCtxSynchronize()));
        close(1);
        assert_eq!(call!(cuCtxSynchronize()), 709);
        assert_eq!(call!(cuCtxSetCurrent(second)), 201);
        assert_eq!(call!(cuDevicePrimaryCtxRelease_v2(1)), 201);
        ok(call!(cuCtxSetCurrent(first)));
        close(0);
    } |report| assert_eq!(report.len(), 5, "{report:#?}");

    fn handles_are_used_once_and_in_their_context["DRIVER_GPUS" = "A100,A100"] {
        let first = open(0);
        let (old, event) = (stream(), event());
        open(1);
        assert_eq!(call!(cuStreamSynchronize(old)), 400, "of another context");
        ok(call!(cuCtxSetCurrent(first)));
        assert_eq!(call!(cuStreamSynchronize(event)), 400, "of another kind");
        assert_eq!(call!(cuStreamSynchronize(0x1234)), 400, "no handle");
        destroy(&[old]);
        assert_eq!(call!(cuStreamDestroy_v2(old)), 400, "again");
        let new = stream();
        assert_ne!(new, old, "no handle comes back");
        ok(call!(cuEventDestroy_v2(event)));
        assert_eq!(call!(cuEventDestroy_v2(event)), 400);
        assert_eq!(call!(cuEventRecord(event, new)), 400);
        assert_eq!(call!(cuModuleUnload(new)), 400);
        assert_eq!(call!(cuGraphDestroy(new)), 400);
        assert_eq!(call!(cuGraphExecDestroy(new)), 400);
        assert_eq!(call!(cuFuncSetAttribute(new, 8, 0)), 400);
        destroy(&[new]);
        close(0);
        close(1);
    } |report| {
        assert_eq!(report.len(), 10, "{report:#?}");
        let ends = |line: &&str| line.ends_with("(400 CUDA_ERROR_INVALID_HANDLE)");
        assert!(report.iter().all(ends), "{report:#?}");
    };

    fn memory_is_given_up_once_and_copied_inside[] {
        open(0);
        let (place, host, stream) = (alloc(8), pinned(2), stream());
        assert_eq!(call!(cuMemAlloc_v2(Out::of(&mut 0), 0)), 1);
        assert_eq!(call!(cuMemFree_v2(place + 4)), 1);
        assert_eq!(call!(cuMemcpyDtoDAsync_v2(place + 4, place, 8, stream)), 1);
        let copy = |from: *mut u32, to, bytes| {
            call!(cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, stream))
        };
        assert_eq!(copy(host, place + 4, 8), 1);
        assert_eq!(copy(host.wrapping_add(1), place, 8), 1, "beyond the pinned memory");
        let address = |host: *mut u32| {
            let mut address = 0;
            let code = call!(cuMemHostGetDevicePointer_v2(Out::of(&mut address), host.cast(), 0));
            (code, address)
        };
        let (code, mapped) = address(host);
        assert_eq!((code, address(host.wrapping_add(1))), (0, (0, mapped + 4)));
        assert_ne!(mapped, host.addr() as u64);
        assert_eq!(address(host.wrapping_add(2)).0, 1);
        let inside = driverAddress(place + 4, 4);
        assert!(!inside.is_null() && driverAddress(place + 4, 5).is_null());
        assert_ne!(inside.addr() as u64, place + 4);
        ok(call!(cuMemFreeHost(host.cast())));
        assert_eq!(call!(cuMemFreeHost(host.cast())), 1);
        free(place);
        assert_eq!(call!(cuMemFree_v2(place)), 1);
        destroy(&[stream]);
        close(0);
    } |report| assert_eq!(report.len(), 8, "{report:#?}");

    fn what_is_left_at_the_release_is_a_leak[] {
        open(0);
        let [first, _] = [stream(), stream()];
        begin(first);
        let graph: Handle = made(|out| call!(cuStreamEndCapture(first, out)));
        let _: Handle = made(|out| call!(cuGraphInstantiateWithFlags(out, graph, 0)));
        event();
        alloc(100);
        alloc(23);
        pinned(2);
        kernel("store");
        close(0);
    } |report| assert_eq!(report, [
        "leak: 2 streams on GPU 0",
        "leak: 1 events on GPU 0",
        "leak: 1 graphs on GPU 0",
        "leak: 1 execs on GPU 0",
        "leak: 1 modules on GPU 0",
        "leak: 2 allocations of 123 bytes on GPU 0",
        "leak: 1 pinned allocations of 8 bytes on GPU 0",
    ]);

    fn what_is_left_at_the_end_of_the_process_is_a_leak[] {
        open(0);
        stream();
    } |report| assert_eq!(report, ["leak: 1 streams on GPU 0"]);

    fn a_device_that_still_works_at_the_end_was_given_up[] {
        open(0);
        hold(stream());
    } clean;
}

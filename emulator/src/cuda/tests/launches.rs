//! Modules and launches.

use super::*;

/// Loads an image: the error, and the log of at most so many bytes.
fn load(image: &[u8], bytes: usize) -> (i32, String) {
    let image = CString::new(image).expect("no zero");
    let mut log = vec![0u8; 200];
    let (mut module, mut options) = (0, [5, 6]);
    let mut values = [log.as_mut_ptr().cast(), ptr::without_provenance_mut::<c_void>(bytes)];
    let (options, list) = (options.as_mut_ptr(), values.as_mut_ptr());
    let out = Out::of(&mut module);
    let code = call!(cuModuleLoadDataEx(out, image.as_ptr().cast(), 2, options, list));
    if code == 0 {
        ok(call!(cuModuleUnload(module)));
    }
    let text = log.iter().take_while(|byte| **byte != 0).copied().collect();
    (code, String::from_utf8(text).expect("a text"))
}

/// A launch of `store` with these extents and so much dynamic shared memory.
fn shape(function: Handle, grid: [u32; 3], block: [u32; 3], shared: u32) -> i32 {
    let stream = stream();
    let place = alloc(4);
    let values = [place, 1];
    let mut pointers = values.each_ref().map(|value| (&raw const *value).cast_mut().cast());
    let ([gx, gy, gz], [bx, by, bz]) = (grid, block);
    let (list, none) = (pointers.as_mut_ptr(), ptr::null_mut());
    let launched =
        call!(cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, list, none));
    free(place);
    destroy(&[stream]);
    launched
}

processes! {
    fn images_are_ptx_that_driver_and_gpu_take[] {
        open(0);
        let with = |from: &str, to: &str| PTX.replace(from, to).into_bytes();
        assert_eq!(load(PTX.as_bytes(), 200), (0, String::new()));
        let none = String::new();
        assert_eq!(load(b"\x7fELF...", 200), (209, none.clone()));
        assert_eq!(load(b"\x50\xed\x55\xba", 200), (209, none.clone()));
        assert_eq!(load(b"// no PTX", 200), (209, none.clone()));
        assert_eq!(load(&with("sm_80", "sm_90"), 200), (209, none.clone()));
        assert_eq!(load(&with("sm_80", "sm_80a"), 200), (0, none.clone()));
        assert_eq!(load(&with(".version 8.0", ".version 8.3"), 200).0, 222);
        let (code, log) = load(&with("st.global.u32", "unknown"), 200);
        assert_eq!(code, 218);
        assert!(log.contains("unknown"), "{log}");
        assert_eq!(load(&with("st.global.u32", "unknown"), 6), (218, log[..5].into()));
        close(0);
    } clean;

    fn functions_are_found_by_name_and_know_their_limits[] {
        open(0);
        let (module, store) = kernel("store");
        let mut none = 0;
        let out = Out::of(&mut none);
        assert_eq!(call!(cuModuleGetFunction(out, module, c"missing".as_ptr())), 500);
        let attribute = |number| made(|out| call!(cuFuncGetAttribute(out, number, store)));
        assert_eq!([0, 1, 3, 8].map(attribute), [64, 0, 0, 48 << 10]);
        assert!((1..256).contains(&attribute(4)));
        ok(call!(cuFuncSetAttribute(store, 8, 163 << 10)));
        assert_eq!(call!(cuFuncSetAttribute(store, 8, (163 << 10) + 1)), 1);
        assert_eq!(attribute(8), 163 << 10);
        ok(call!(cuModuleUnload(module)));
        assert_eq!(call!(cuFuncSetAttribute(store, 8, 0)), 400, "it went with its module");
        close(0);
    } |report| assert_eq!(report.len(), 2, "{report:#?}");

    fn launches_keep_to_the_limits_of_gpu_and_kernel[] {
        open(0);
        let ((module, store), one) = (kernel("store"), [1, 1, 1]);
        let (other, increase) = kernel("increase");
        assert_eq!(shape(store, one, [32, 2, 1], 48 << 10), 0);
        assert_eq!(shape(store, one, [65, 1, 1], 0), 701, "compiled for 64");
        for (grid, block) in [
            ([0, 1, 1], one),
            ([1, 65_536, 1], one),
            ([1, 1, 65_536], one),
            (one, [1, 0, 1]),
            (one, [1025, 1, 1]),
            (one, [1, 1, 65]),
            (one, [32, 33, 1]),
        ] {
            assert_eq!(shape(increase, grid, block, 0), 1, "{grid:?} {block:?}");
        }
        assert_eq!(shape(store, one, one, (48 << 10) + 1), 1);
        ok(call!(cuFuncSetAttribute(store, 8, 100 << 10)));
        assert_eq!(shape(store, one, one, 100 << 10), 0);
        ok(call!(cuModuleUnload(module)));
        ok(call!(cuModuleUnload(other)));
        close(0);
    } |report| assert_eq!(report.len(), 9, "{report:#?}");

    fn parameters_are_all_there[] {
        open(0);
        let ((module, store), stream) = (kernel("store"), stream());
        let launch = |list: *mut *mut c_void, extra: *mut *mut c_void| {
            call!(cuLaunchKernel(store, 1, 1, 1, 1, 1, 1, 0, stream, list, extra))
        };
        let none = ptr::null_mut();
        assert_eq!(launch(none, none), 1);
        let mut pointers = [(&raw mut *Box::leak(Box::new(0u64))).cast(), ptr::null_mut()];
        assert_eq!(launch(pointers.as_mut_ptr(), none), 1);
        assert_eq!(launch(none, pointers.as_mut_ptr()), 801);
        ok(call!(cuModuleUnload(module)));
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuLaunchKernel: store: no parameter 0",
        "misuse: cuLaunchKernel: store: no parameter 1", "misuse: cuLaunchKernel: parameters by"]);

    fn a_module_outlives_the_graphs_that_use_it[] {
        open(0);
        let ((module, store), place, stream) = (kernel("store"), alloc(4), stream());
        begin(stream);
        ok(launch(store, &[place, 3], stream));
        let exec = end(stream);
        ok(call!(cuModuleUnload(module)));
        ok(call!(cuGraphExecDestroy(exec)));
        free(place);
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuModuleUnload: 1 graphs use module 0xd0"]);
}

//! Order on streams and in graphs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// In each round two streams store to one place, behind a gate: the numbers that were seen there.
fn rounds(ordered: bool) -> Vec<u32> {
    open(0);
    let ((module, store), place) = (kernel("store"), alloc(4));
    let ([gated, first, second], open_gate) = ([stream(), stream(), stream()], event());
    let mut seen = vec![];
    for _ in 0..64 {
        let gate = hold(gated);
        ok(call!(cuEventRecord(open_gate, gated)));
        ok(call!(cuStreamWaitEvent(first, open_gate, 0)));
        ok(call!(cuStreamWaitEvent(second, open_gate, 0)));
        ok(launch(store, &[place, 1], first));
        if ordered {
            order(first, second);
        }
        ok(launch(store, &[place, 2], second));
        gate.open();
        ok(call!(cuCtxSynchronize()));
        seen.push(read(place, first));
    }
    free(place);
    ok(call!(cuModuleUnload(module)));
    ok(call!(cuEventDestroy_v2(open_gate)));
    destroy(&[gated, first, second]);
    close(0);
    seen.sort_unstable();
    seen.dedup();
    seen
}

/// True if an event was reached.
fn is_done(event: Handle) -> bool {
    match call!(cuEventQuery(event)) {
        0 => true,
        code => {
            assert_eq!(code, 600);
            false
        }
    }
}

processes! {
    fn streams_without_an_event_between_them_run_in_both_orders[] {
        assert_eq!(rounds(false), [1, 2]);
    } clean;

    fn another_seed_runs_them_in_both_orders_too["DRIVER_SEED" = "77"] {
        assert_eq!(rounds(false), [1, 2]);
    } clean;

    fn streams_with_an_event_between_them_run_in_one_order[] {
        assert_eq!(rounds(true), [2]);
    } clean;

    fn the_eager_worker_keeps_the_order_of_the_calls["DRIVER_SCHEDULE" = "eager"] {
        assert_eq!(rounds(false), [2]);
    } clean;

    fn the_late_worker_turns_the_order_of_the_calls_around["DRIVER_SCHEDULE" = "late"] {
        assert_eq!(rounds(false), [1]);
    } clean;

    fn the_late_worker_begins_without_a_wait_of_the_host["DRIVER_SCHEDULE" = "late"] {
        open(0);
        let stream = stream();
        operation(stream, || 0).wait();
        destroy(&[stream]);
        close(0);
    } clean;

    fn a_graph_runs_in_any_order_that_its_edges_allow[] {
        open(0);
        let ((module, store), [place, copy]) = (kernel("store"), [alloc(4), alloc(4)]);
        let [first, second] = [stream(), stream()];
        begin(first);
        ok(launch(store, &[place, 9], first));
        order(first, second);
        ok(launch(store, &[place, 1], first));
        ok(launch(store, &[place, 2], second));
        order(second, first);
        ok(call!(cuMemcpyDtoDAsync_v2(copy, place, 4, first)));
        ok(launch(store, &[place, 7], first));
        let exec = end(first);
        ok(call!(cuGraphUpload(exec, first)));
        let mut seen = vec![];
        for _ in 0..64 {
            launch_graph(exec, second);
            seen.push(read(copy, second));
            assert_eq!(read(place, second), 7);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, [1, 2]);
        ok(call!(cuGraphExecDestroy(exec)));
        ok(call!(cuModuleUnload(module)));
        free(place);
        free(copy);
        destroy(&[first, second]);
        close(0);
    } clean;

    fn a_graph_is_launched_behind_its_own_last_launch[] {
        open(0);
        let [first, second] = [stream(), stream()];
        let running = Arc::new(AtomicU32::new(0));
        begin(first);
        let counter = running.clone();
        operation(first, move || {
            assert_eq!(counter.fetch_add(1, Ordering::SeqCst), 0, "two at once");
            thread::sleep(Duration::from_millis(1));
            counter.fetch_sub(1, Ordering::SeqCst);
            0
        });
        let exec = end(first);
        for _ in 0..10 {
            launch_graph(exec, first);
            launch_graph(exec, second);
        }
        ok(call!(cuCtxSynchronize()));
        ok(call!(cuGraphExecDestroy(exec)));
        destroy(&[first, second]);
        close(0);
    } clean;

    fn a_graph_that_runs_is_destroyed_at_its_end[] {
        open(0);
        let stream = stream();
        begin(stream);
        let (gate, runs) = (Arc::new(Gate::default()), Arc::new(AtomicU32::new(0)));
        let (held, counter) = (gate.clone(), runs.clone());
        let released = operation(stream, move || {
            held.wait();
            counter.fetch_add(1, Ordering::SeqCst);
            0
        });
        let exec = end(stream);
        launch_graph(exec, stream);
        launch_graph(exec, stream);
        ok(call!(cuGraphExecDestroy(exec)));
        assert_eq!(call!(cuGraphLaunch(exec, stream)), 400);
        assert_eq!(call!(cuStreamQuery(stream)), 600);
        assert!(!released.is_open());
        gate.open();
        synchronize(stream);
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        released.wait();
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuGraphLaunch: exec 0xd0"]);

    fn an_operation_is_released_when_nothing_can_run_it[] {
        open(0);
        let stream = stream();
        operation(stream, || 0).wait();
        begin(stream);
        let released = operation(stream, || 0);
        let graph = made(|out| call!(cuStreamEndCapture(stream, out)));
        let [first, second] =
            [0, 0].map(|flags| made(|out| call!(cuGraphInstantiateWithFlags(out, graph, flags))));
        ok(call!(cuGraphExecDestroy(first)));
        ok(call!(cuGraphDestroy(graph)));
        thread::sleep(Duration::from_millis(20));
        assert!(!released.is_open(), "an exec is left");
        ok(call!(cuGraphExecDestroy(second)));
        released.wait();
        // Nor does a capture that fails keep it.
        begin(stream);
        let released = operation(stream, || 0);
        assert_eq!(call!(cuStreamQuery(stream)), 900);
        assert_eq!(end_fails(stream), 901);
        released.wait();
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuStreamQuery: "]);

    fn an_operation_that_waits_holds_no_other_stream[] {
        open(0);
        let [held, free_one, place] = [stream(), stream(), alloc(4)];
        let gate = hold(held);
        write(place, 5, free_one);
        assert_eq!(read(place, free_one), 5);
        assert_eq!(call!(cuStreamQuery(held)), 600);
        gate.open();
        synchronize(held);
        assert_eq!(call!(cuStreamQuery(held)), 0);
        free(place);
        destroy(&[held, free_one]);
        close(0);
    } clean;

    fn pinned_memory_is_read_at_the_copy_and_other_memory_at_the_call[] {
        open(0);
        let (stream, host, places) = (stream(), pinned(2), alloc(8));
        let gate = hold(stream);
        // SAFETY: pinned memory of two numbers, which no copy reads before the gate opens.
        unsafe { host.write(1) };
        let mut other = 1u32;
        ok(call!(cuMemcpyHtoDAsync_v2(places, host.cast(), 4, stream)));
        ok(call!(cuMemcpyHtoDAsync_v2(places + 4, (&raw const other).cast(), 4, stream)));
        ok(call!(cuMemcpyDtoHAsync_v2(host.wrapping_add(1).cast(), places, 4, stream)));
        other += 1;
        // SAFETY: as above.
        unsafe { host.write(other) };
        gate.open();
        assert_eq!([read(places, stream), read(places + 4, stream)], [2, 1]);
        // SAFETY: the copy has ended, as one behind it has.
        assert_eq!(unsafe { host.add(1).read() }, 2);
        ok(call!(cuMemFreeHost(host.cast())));
        free(places);
        destroy(&[stream]);
        close(0);
    } clean;

    fn an_event_is_a_point_of_the_stream_as_it_was[] {
        open(0);
        let ([first, second], event) = ([stream(), stream()], event());
        assert!(is_done(event), "never recorded");
        ok(call!(cuStreamWaitEvent(second, event, 0)));
        let gates = [hold(first), hold(first)];
        assert!(is_done(event));
        let late = made(|out| call!(cuEventCreate(out, 2)));
        ok(call!(cuEventRecord(late, first)));
        ok(call!(cuStreamWaitEvent(second, late, 0)));
        ok(call!(cuEventRecord(event, second)));
        // A later record of an event changes no earlier wait for it.
        ok(call!(cuEventRecord(late, second)));
        gates[0].open();
        assert!(!is_done(event) && !is_done(late));
        gates[1].open();
        ok(call!(cuEventSynchronize(late)));
        assert!(is_done(event));
        [event, late].iter().for_each(|event| ok(call!(cuEventDestroy_v2(*event))));
        destroy(&[first, second]);
        close(0);
    } clean;

    fn a_stream_that_is_destroyed_ends_its_work[] {
        open(0);
        let (first, other, place) = (stream(), stream(), alloc(4));
        let gate = hold(first);
        write(place, 8, first);
        destroy(&[first]);
        assert_eq!(call!(cuStreamQuery(first)), 400);
        gate.open();
        ok(call!(cuCtxSynchronize()));
        assert_eq!(read(place, other), 8);
        free(place);
        destroy(&[other]);
        close(0);
    } found(&["misuse: cuStreamQuery: stream 0xd0"]);

    fn memory_is_given_up_after_all_work[] {
        open(0);
        let (stream, place) = (stream(), alloc(4));
        let gate = hold(stream);
        write(place, 8, stream);
        let opener = gate.clone();
        let thread = thread::spawn(move || {
            thread::sleep(Duration::from_millis(20));
            opener.open();
        });
        free(place);
        assert!(gate.is_open());
        thread.join().expect("no panic");
        destroy(&[stream]);
        close(0);
    } clean;

    fn time_passes_between_events[] {
        open(0);
        let stream = stream();
        let [start, end] = [0, 0].map(|flags| made(|out| call!(cuEventCreate(out, flags))));
        let elapsed = |from, to, ms: &mut f32| call!(cuEventElapsedTime(Out::of(ms), from, to));
        let mut ms = 0.0;
        assert_eq!(elapsed(start, end, &mut ms), 400, "never recorded");
        ok(call!(cuEventRecord(start, stream)));
        let gate = hold(stream);
        ok(call!(cuEventRecord(end, stream)));
        ok(call!(cuEventSynchronize(start)));
        assert_eq!(elapsed(start, end, &mut ms), 600);
        thread::sleep(Duration::from_millis(5));
        gate.open();
        ok(call!(cuEventSynchronize(end)));
        ok(elapsed(start, end, &mut ms));
        assert!((5.0..5000.0).contains(&ms), "{ms}");
        ok(call!(cuEventDestroy_v2(start)));
        ok(call!(cuEventDestroy_v2(end)));
        destroy(&[stream]);
        close(0);
    } found(&["misuse: cuEventElapsedTime: the event was never recorded"]);
}

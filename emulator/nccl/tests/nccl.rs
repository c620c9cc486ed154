//! Mistakes in programs that use all-reduce, each run in separate processes. The library must
//! report each mistake on every rank, and accept the corrected program.
#![allow(unsafe_code, clippy::unwrap_used)]

#[path = "nccl/driver.rs"]
mod driver;

use std::process::{Command, Stdio, exit};
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{env, fs, ptr, thread};

use driver::*;
use emulator_nccl::*;

const HALF: i32 = 6;
const FLOAT: i32 = 7;
/// A call that has not returned after this time is considered waiting.
const A_WHILE: Duration = Duration::from_millis(300);

/// A mistake.
struct Row {
    name: &'static str,
    ranks: i32,
    /// An environment variable that is set for the incorrect program.
    variable: [&'static str; 2],
    program: fn(&Rank, bool) -> i32,
    /// The expected error code on each rank.
    code: i32,
    /// Text that each rank's report must contain; empty if no report is expected.
    says: &'static str,
}

/// One rank's process.
struct Rank {
    id: UniqueId,
    rank: i32,
    count: i32,
    stream: Stream,
}

impl Rank {
    /// Joins the group with this rank and count; returns the error code.
    fn init(&self, id: UniqueId, [rank, count]: [i32; 2]) -> i32 {
        // SAFETY: writes one handle.
        unsafe { ncclCommInitRank(&mut ptr::null_mut(), count, id, rank) }
    }

    fn join(&self) -> Raw {
        let mut raw = ptr::null_mut();
        // SAFETY: writes one handle.
        assert_eq!(unsafe { ncclCommInitRank(&mut raw, self.count, self.id, self.rank) }, 0);
        raw
    }

    /// All-reduces on the stream, in place unless addresses are given.
    fn sum(&self, raw: Raw, [from, to]: [u64; 2], count: usize, kind: i32) -> i32 {
        let [from, to] = [from, to].map(|at| ptr::with_exposed_provenance_mut(at as usize));
        // SAFETY: the stream lives as long as the process.
        unsafe { ncclAllReduce(from, to, count, kind, 0, raw, self.stream.raw()) }
    }

    /// Waits for the stream, and returns the error of the all-reduces so far.
    fn end(&self, raw: Raw) -> i32 {
        self.stream.wait();
        async_error(raw)
    }
}

fn async_error(raw: Raw) -> i32 {
    let mut error = -1;
    // SAFETY: writes one number.
    assert_eq!(unsafe { ncclCommGetAsyncError(raw, &mut error) }, 0);
    error
}

const fn row(
    name: &'static str,
    ranks: i32,
    code: i32,
    says: &'static str,
    program: fn(&Rank, bool) -> i32,
) -> Row {
    Row { name, ranks, variable: ["TEST_NOTHING", ""], program, code, says }
}

const fn with(variable: [&'static str; 2], row: Row) -> Row {
    Row { variable, ..row }
}

const ROWS: &[Row] = &[
    row("a rank outside of the group", 1, 4, "rank 2 of 1 ranks", |my, wrong| {
        my.init(my.id, [if wrong { 2 } else { 0 }, 1])
    }),
    row("another identifier", 1, 5, "is not from ncclGetUniqueId", |my, wrong| {
        my.init(if wrong { UniqueId([7; 128]) } else { my.id }, [0, 1])
    }),
    row("a thread without a context", 1, 1, "this thread has no context", |my, wrong| {
        DEVICE.set(if wrong { -1 } else { 0 });
        my.init(my.id, [0, 1])
    }),
    row("an identifier that was used", 1, 5, "was already used for a group", |my, wrong| {
        if wrong {
            my.join();
        }
        my.init(my.id, [0, 1])
    }),
    row("a rank that joins twice", 2, 5, "rank 0 has joined twice", |my, wrong| {
        my.init(my.id, [if wrong { 0 } else { my.rank }, 2])
    }),
    row("ranks with different counts", 2, 5, " ranks, rank ", |my, wrong| {
        my.init(my.id, [my.rank, 2 + my.rank * i32::from(wrong)])
    }),
    row("ranks on one GPU", 2, 5, "ranks 0 and 1 are both on GPU ", |my, wrong| {
        DEVICE.set(if wrong { 0 } else { my.rank });
        my.init(my.id, [my.rank, 2])
    }),
    with(
        ["NCCL_SOCKET_IFNAME", "=nobody-has-this"],
        row("an interface that is missing", 1, 5, "", |my, _| my.init(my.id, [0, 1])),
    ),
    row("a null pointer for a result", 1, 4, "the pointer for the result is null", |_, wrong| {
        // SAFETY: null, or valid for a write of one number.
        unsafe { ncclGetVersion(if wrong { ptr::null_mut() } else { &mut 0 }) }
    }),
    with(
        ["NCCL_TEST_VERSION", "21602"],
        row("a version that a test sets", 1, 21602, "", |_, _| {
            let mut version = 0;
            // SAFETY: writes one number.
            assert_eq!(unsafe { ncclGetVersion(&mut version) }, 0);
            if version == 22907 { 0 } else { version }
        }),
    ),
    row("an unsupported type", 1, 4, "type 8 and operation 0 are not", |my, wrong| {
        my.sum(my.join(), [ones(4); 2], 4, if wrong { 8 } else { HALF })
    }),
    row("a buffer beyond its allocation", 1, 4, "is not the address of 5 Float", |my, wrong| {
        my.sum(my.join(), [ones(4); 2], if wrong { 5 } else { 4 }, FLOAT)
    }),
    row("an output that overlaps the input", 1, 4, "partly overlaps the input", |my, wrong| {
        let memory = ones(4);
        my.sum(my.join(), [memory, memory + if wrong { 4 } else { 8 }], 2, FLOAT)
    }),
    row("a communicator that was left", 1, 4, "was aborted by ncclCommAbort", |my, wrong| {
        let raw = my.join();
        if wrong {
            assert_eq!(ncclCommAbort(raw), 0);
        }
        my.sum(raw, [ones(1); 2], 1, FLOAT)
    }),
    row("an invalid communicator", 1, 4, "0x7 is not a communicator", |my, wrong| {
        ncclCommAbort(if wrong { ptr::without_provenance_mut(7) } else { my.join() })
    }),
    row("two threads with one communicator", 1, 5, "two threads use one comm", |my, wrong| {
        let (raw, memory) = (my.join().addr(), ones(1));
        let raw = || ptr::without_provenance_mut(raw);
        IS_SLOW.store(wrong, Ordering::SeqCst);
        thread::scope(|scope| {
            let other = scope.spawn(|| assert_eq!(my.sum(raw(), [memory; 2], 1, FLOAT), 0));
            wait_until(|| IS_INSIDE.load(Ordering::SeqCst) && (wrong || other.is_finished()));
            let code = my.sum(raw(), [memory; 2], 1, FLOAT);
            IS_SLOW.store(false, Ordering::SeqCst);
            code
        })
    }),
    row("a stream that the driver rejects", 1, 1, "", |my, wrong| {
        let stream = if wrong { ptr::null_mut() } else { my.stream.raw() };
        let at = ptr::with_exposed_provenance_mut(ones(1) as usize);
        // SAFETY: the stream is null, or lives as long as the process.
        unsafe { ncclAllReduce(at, at, 1, FLOAT, 0, my.join(), stream) }
    }),
    row("freed memory", 1, 700, "are no longer device memory", |my, wrong| {
        let (raw, memory) = (my.join(), ones(4));
        let graph = capture(|| assert_eq!(my.sum(raw, [memory; 2], 4, FLOAT), 0));
        if wrong {
            forget(memory);
        }
        my.stream.launch(&graph);
        my.stream.wait();
        STICKY.load(Ordering::SeqCst)
    }),
    row("a sum after its release", 1, 999, "is executed after its release", |my, wrong| {
        let (raw, memory) = (my.join(), ones(4));
        let graph = capture(|| assert_eq!(my.sum(raw, [memory; 2], 4, FLOAT), 0));
        if wrong {
            graph.release();
        }
        my.stream.launch(&graph);
        my.stream.wait();
        STICKY.load(Ordering::SeqCst)
    }),
    with(
        ["NCCL_TEST_PLANT", "sum:1=hang"],
        row("two sums at once", 1, 0, "two all-reduces of a group run at once", |my, wrong| {
            let (raw, memory, second) = (my.join(), ones(1), Stream::new());
            assert_eq!(my.sum(raw, [memory; 2], 1, FLOAT), 0);
            if !wrong {
                my.stream.wait();
            }
            let code = Rank { stream: second, ..*my }.sum(raw, [memory; 2], 1, FLOAT);
            wait_until(|| !wrong || fs::exists(env::var("DRIVER_REPORT").unwrap()).unwrap());
            ncclCommAbort(raw);
            second.wait();
            code
        }),
    ),
    row("ranks that differ in their sums", 2, 5, ADDS, |my, wrong| {
        let (raw, count) = (my.join(), if wrong && my.rank == 1 { 3 } else { 4 });
        assert_eq!(my.sum(raw, [ones(4); 2], count, FLOAT), 0);
        my.end(raw)
    }),
    row("ranks that differ in the type of a sum", 2, 5, "rank 1 adds 4 of half", |my, wrong| {
        let (raw, kind) = (my.join(), if wrong && my.rank == 1 { HALF } else { FLOAT });
        assert_eq!(my.sum(raw, [ones(4); 2], 4, kind), 0);
        my.end(raw)
    }),
    row("a rank that has exited", 2, 6, "", |my, wrong| {
        let raw = my.join();
        if wrong && my.rank == 1 {
            assert_eq!(ncclCommAbort(raw), 0);
            return 6;
        }
        assert_eq!(my.sum(raw, [ones(4); 2], 4, FLOAT), 0);
        // An all-reduce with a missing rank hangs until this rank leaves.
        let limit = if wrong { A_WHILE } else { PATIENCE };
        assert_eq!(my.stream.end().recv_timeout(limit).is_err(), wrong);
        wait_until(|| !wrong || async_error(raw) != 0);
        let code = async_error(raw);
        assert_eq!(ncclCommAbort(raw), 0);
        my.stream.wait();
        code
    }),
    row("a first sum of its size in a capture", 2, 1, "", |my, wrong| {
        let (raw, memory) = (my.join(), ones(4));
        if !wrong {
            assert_eq!(my.sum(raw, [memory; 2], 4, FLOAT), 0);
            my.stream.wait();
        }
        let mut code = 0;
        capture(|| code = my.sum(raw, [memory; 2], 4, FLOAT));
        code
    }),
    with(
        ["NCCL_TEST_PLANT", "nothing:1=1"],
        row("an invalid injection", 1, 0, "`nothing:1=1` is not a valid injection", |my, _| {
            my.init(my.id, [0, 1])
        }),
    ),
    with(
        ["NCCL_TEST_PLANT", "ncclAllReduce:2=3,1/ncclAllReduce:1=4"],
        row("an injected code at its call", 1, 3, "", |my, _| {
            let (raw, memory) = (my.join(), ones(4));
            let codes = [(); 3].map(|()| my.sum(raw, [memory; 2], 4, FLOAT));
            assert_eq!([codes[0], codes[2]], [0; 2]);
            codes[1]
        }),
    ),
    row("a driver that is missing", 1, 2, "", |my, _| my.init(my.id, [0, 1])),
    // Not a mistake: `ncclCommAbort` ends the all-reduces, and waits until no graph contains one.
    row("a group that is left", 2, 0, "", |my, _| {
        let (raw, memory) = (my.join(), ones(4));
        assert_eq!(my.sum(raw, [memory; 2], 4, FLOAT), 0);
        my.stream.wait();
        // An all-reduce of zero elements does nothing, so one rank may call it without the others.
        assert!(my.rank == 0 || my.sum(raw, [memory; 2], 0, FLOAT) == 0);
        let graph = capture(|| assert_eq!(my.sum(raw, [memory; 2], 4, FLOAT), 0));
        let address = raw.addr();
        let left = thread::spawn(move || ncclCommAbort(ptr::without_provenance_mut(address)));
        thread::sleep(A_WHILE);
        assert!(!left.is_finished(), "while a graph holds a sum");
        my.stream.launch(&graph);
        my.stream.wait();
        drop(graph);
        left.join().unwrap()
    }),
];

const ADDS: &str = "rank 0 adds 4 of float (call 1, sum 1), rank 1 adds 3 of float (call 1, sum 1)";
/// Environment variable that is set in each rank's process.
const CHILD: &str = "TEST_ROW";

/// Runs the row's program in a rank's process, and exits with the program's error code.
fn child(row: &Row, is_wrong: bool) -> ! {
    thread::spawn(|| {
        thread::sleep(2 * PATIENCE);
        exit(i32::MAX)
    });
    let [rank, count] = ["TEST_RANK", "TEST_COUNT"].map(|n| env::var(n).unwrap().parse().unwrap());
    let mut id = UniqueId([0; 128]);
    hex::decode_to_slice(env::var("TEST_ID").unwrap(), &mut id.0).unwrap();
    if !(is_wrong && row.code == 2) {
        install();
    }
    DEVICE.set(rank);
    let code = (row.program)(&Rank { id, rank, count, stream: Stream::new() }, is_wrong);
    let path = env::var("TEST_CODE").unwrap();
    fs::write(path, code.to_string()).unwrap();
    exit(0)
}

/// The error code and the report of each rank.
fn processes(row: &Row, is_wrong: bool) -> Vec<(Option<i32>, String)> {
    let mut id = UniqueId([0; 128]);
    // SAFETY: writes one identifier.
    assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
    let folder = env::temp_dir().join(format!("nccl.{}.{row:p}.{is_wrong}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = |kind: &str, rank: i32| folder.join(format!("{kind}.{rank}"));
    let start = |rank: i32| {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "invalid_collectives_are_detected", "--nocapture"]);
        command.env(CHILD, format!("{is_wrong} {}", row.name)).env("TEST_ID", hex::encode(id.0));
        command.env("TEST_RANK", rank.to_string()).env("TEST_COUNT", row.ranks.to_string());
        command.env("DRIVER_REPORT", file("report", rank)).env("TEST_CODE", file("code", rank));
        if is_wrong {
            command.env(row.variable[0], row.variable[1]);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let children: Vec<_> = (0..row.ranks).map(start).collect();
    children.into_iter().for_each(|mut child| drop(child.wait()));
    let text = |kind: &str, rank| fs::read_to_string(file(kind, rank)).unwrap_or_default();
    let found = (0..row.ranks).map(|rank| (text("code", rank).parse().ok(), text("report", rank)));
    let found = found.collect();
    fs::remove_dir_all(&folder).unwrap();
    found
}

/// Each mistake causes the expected error code and message on every rank, and each corrected
/// program passes without findings.
#[test]
fn invalid_collectives_are_detected() {
    if let Ok(task) = env::var(CHILD) {
        let (is_wrong, name) = task.split_once(' ').unwrap();
        child(ROWS.iter().find(|row| row.name == name).unwrap(), is_wrong == "true");
    }
    let mut faults = vec![];
    for row in ROWS {
        for (code, report) in processes(row, true) {
            let is_said =
                if row.says.is_empty() { report.is_empty() } else { report.contains(row.says) };
            if code != Some(row.code) || !is_said {
                faults.push(format!("{}: {code:?} {report}", row.name));
            }
        }
        for (code, report) in processes(row, false) {
            if code != Some(0) || !report.is_empty() {
                faults.push(format!("{}, corrected: {code:?} {report}", row.name));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

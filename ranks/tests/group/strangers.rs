//! A peer that is not a rank of the run is refused, and the run starts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Lines, launch, logged, options};
use ranks::frame::GREETING;
use ranks::{Group, JoinOptions, Launch, Lookup, RanksError};

const TOKEN: &str = "the secret of this run";

/// A run of two ranks at a given address, of which rank 0 waits.
struct Waiting {
    address: String,
    options: JoinOptions,
    lines: Lines,
    first: thread::JoinHandle<Result<Group, RanksError>>,
}

fn wait() -> Waiting {
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = port.local_addr().expect("an address").to_string();
    drop(port);
    let nothing: Lookup = Arc::new(|_| None);
    let (options, lines) = logged(JoinOptions {
        address: Some(address.clone()),
        token: Some(TOKEN.into()),
        join_timeout: Duration::from_secs(20),
        timeout: Duration::from_secs(2),
        lookup: nothing,
        ..JoinOptions::default()
    });
    let own = options.clone();
    let first = thread::spawn(move || Group::join(&launch(0, 2), own));
    Waiting { address, options, lines, first }
}

impl Waiting {
    fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(&self.address) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for a line of the log.
    fn line(&self, said: &str) {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let lines = self.lines.lock().expect("no panic").clone();
            if lines.iter().any(|line| line.contains(said)) {
                return assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
            }
            assert!(Instant::now() < deadline, "no line says `{said}`: {lines:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The true rank 1 comes, and the run starts at once.
    fn starts(self) {
        let begin = Instant::now();
        let second = Group::join(&launch(1, 2), self.options).expect("it has its place");
        let first = self.first.join().expect("no panic").expect("all came");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        drop(thread::spawn(move || first.barrier("the start").map(|()| first.leave(None))));
        second.barrier("the start").expect("both are there");
        second.leave(None);
    }
}

#[test]
fn bytes_of_another_protocol_are_refused() {
    let run = wait();
    run.connect().write_all(b"GET / HTTP/1.1\r\n\r\n").expect("written");
    run.line("it speaks another protocol (`GET / HTTP`)");
    run.connect().write_all(&[0xff; 100_000]).ok();
    run.line("it speaks another protocol (`\\xff\\xff");
    drop(run.connect());
    run.line("it closed the connection in its greeting");
    run.starts();
}

#[test]
fn another_version_is_refused_by_name() {
    let run = wait();
    let mut greeting = GREETING;
    greeting[8] = 9;
    run.connect().write_all(&greeting).expect("written");
    run.line("it speaks version 9 of the protocol, and this rank version 2");
    run.starts();
}

#[test]
fn a_length_beyond_all_bounds_is_refused() {
    let run = wait();
    let mut stream = run.connect();
    stream.write_all(&[&GREETING[..], &[0; 16], &[0xff; 4]].concat()).expect("written");
    run.line("it sent a frame of 4294967295 bytes");
    let mut stream = run.connect();
    stream
        .write_all(&[&GREETING[..], &[0; 16], &[3, 0, 0, 0, 77, 1, 2]].concat())
        .expect("written");
    run.line("it sent bytes that are no frame");
    run.starts();
}

#[test]
fn a_rank_with_another_token_is_refused_and_asks_until_its_time_is_over() {
    let run = wait();
    let wrong = JoinOptions {
        token: Some("the secret of another run".into()),
        join_timeout: Duration::from_millis(300),
        ..run.options.clone()
    };
    let error = Group::join(&launch(1, 2), wrong).expect_err("the token is wrong").to_string();
    assert!(error.contains("the token is another one"), "{error}");
    run.line("the token is another one");
    run.starts();
}

#[test]
fn who_says_nothing_or_half_of_it_delays_nobody() {
    let run = wait();
    let silent: Vec<TcpStream> = (0..40).map(|_| run.connect()).collect();
    let mut half = run.connect();
    half.write_all(&GREETING[..5]).expect("written");
    let mut slow = run.connect();
    slow.write_all(&[&GREETING[..], &[0; 16]].concat()).expect("written");
    let mut answer = [0; 26];
    slow.read_exact(&mut answer).expect("its answer");
    assert_eq!(answer[..10], GREETING);
    run.starts();
    drop(silent);
}

#[test]
fn a_silent_connection_is_closed_and_logged() {
    let run = wait();
    let mut silent = run.connect();
    let begin = Instant::now();
    let mut dripping = run.connect();
    // A byte now and then gains no time.
    let drip = thread::spawn(move || {
        for byte in GREETING {
            let _ = dripping.write_all(&[byte]);
            thread::sleep(Duration::from_millis(700));
        }
    });
    assert_eq!(silent.read(&mut [0]).expect("it is closed"), 0);
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    drip.join().expect("no panic");
    run.line("it did not finish its greeting");
    assert_eq!(run.lines.lock().expect("no panic").len(), 2, "both are logged");
    run.starts();
}

#[test]
fn a_rank_that_comes_twice_or_counts_other_ranks_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, lines) = logged(options(&folder, "job"));
    let join = |launch: Launch| {
        let own = own.clone();
        thread::spawn(move || Group::join(&launch, own))
    };
    let first = join(launch(0, 3));
    let second = [join(launch(1, 3)), join(launch(1, 3))];
    let other = join(launch(2, 5)).join().expect("no panic").expect_err("of 5");
    let said = "was started as one of 5 ranks, and rank 0 as one of 3";
    assert!(other.to_string().contains(said), "{other}");
    while !second.iter().any(thread::JoinHandle::is_finished) {
        thread::sleep(Duration::from_millis(5));
    }
    let third = join(launch(2, 3));
    let mut refused = 0;
    for result in second.map(|thread| thread.join().expect("no panic")) {
        if let Err(error) = result {
            assert!(error.to_string().contains("rank 1 came twice: from host"), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    assert!(first.join().expect("no panic").is_ok() && third.join().expect("no panic").is_ok());
    assert_eq!(lines.lock().expect("no panic").len(), 2, "one line each");
}

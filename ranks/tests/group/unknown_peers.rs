//! Rank 0 rejects peers that are not ranks of the run, and the run still starts.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{Lines, launch, logged, options, wait_for, with_variables};
use ranks::{Group, JoinOptions, Launch, RanksError};

const TOKEN: &str = "the secret of this run";

/// The protocol, its version, and a nonce.
const GREETING: &[u8; 26] = b"onegraph\x03\x000123456789abcdef";

/// Options of a run whose rendezvous is a port of this host.
fn rendezvous_at(port: &str, token: &str) -> JoinOptions {
    with_variables(&[
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", port),
        ("ONEGRAPH_TOKEN", token),
    ])
}

/// A run of two ranks, in which rank 0 is waiting for rank 1.
struct Waiting {
    port: String,
    lines: Lines,
    first: thread::JoinHandle<Result<Group, RanksError>>,
}

fn wait() -> Waiting {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = free.local_addr().expect("an address").port().to_string();
    drop(free);
    let (options, lines) = logged(rendezvous_at(&port, TOKEN));
    let first = thread::spawn(move || Group::join(&launch(0, 2), options));
    Waiting { port, lines, first }
}

impl Waiting {
    fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            match TcpStream::connect(format!("127.0.0.1:{}", self.port)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The real rank 1 joins, and the run starts at once.
    fn starts(self) {
        let begin = Instant::now();
        let second = Group::join(&launch(1, 2), rendezvous_at(&self.port, TOKEN));
        let second = second.expect("it has its place");
        let first = self.first.join().expect("no panic").expect("all came");
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        drop(thread::spawn(move || first.barrier("the start").map(|()| first.leave(None))));
        second.barrier("the start").expect("both are there");
        second.leave(None);
    }
}

#[test]
fn foreign_protocol_is_rejected() {
    let mut version = *GREETING;
    version[8] = 9;
    let framed = |bytes: &[u8]| [GREETING, bytes].concat();
    let run = wait();
    for (bytes, said) in [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "it uses another protocol (`GET / HTTP`)"),
        (vec![0xff; 100_000], "it uses another protocol (`\\xff\\xff"),
        (version.to_vec(), "it uses version 9 of the protocol, and this rank version 3"),
        (framed(&[0xff; 4]), "it sent a frame of 4294967295 bytes"),
        (framed(&[3, 0, 0, 0, 77, 1, 2]), "it sent an invalid frame"),
        (vec![], "it disconnected during the handshake"),
    ] {
        // Rank 0 may reject the peer before all bytes are written.
        let mut stranger = run.connect();
        let _ = stranger.write_all(&bytes);
        if bytes.is_empty() {
            drop(stranger);
        }
        wait_for(&run.lines, said);
    }
    run.starts();
}

#[test]
fn wrong_token_is_rejected_until_timeout() {
    let run = wait();
    let wrong = JoinOptions {
        join_timeout: Duration::from_millis(300),
        ..rendezvous_at(&run.port, "the secret of another run")
    };
    let error = Group::join(&launch(1, 2), wrong).expect_err("the token is wrong").to_string();
    assert!(error.contains("the tokens differ"), "{error}");
    wait_for(&run.lines, "the tokens differ");
    run.starts();
}

#[test]
fn silent_or_partial_peer_does_not_delay_join() {
    let run = wait();
    let silent: Vec<TcpStream> = (0..40).map(|_| run.connect()).collect();
    let mut half = run.connect();
    half.write_all(&GREETING[..5]).expect("written");
    let mut slow = run.connect();
    slow.write_all(GREETING).expect("written");
    let mut answer = [0; GREETING.len()];
    slow.read_exact(&mut answer).expect("its answer");
    assert_eq!(answer[..10], GREETING[..10]);
    run.starts();
    drop(silent);
}

#[test]
fn silent_connection_is_closed_and_logged() {
    let run = wait();
    let mut silent = run.connect();
    let begin = Instant::now();
    let mut dripping = run.connect();
    // Sending single bytes does not extend the deadline.
    let drip = thread::spawn(move || {
        for byte in &GREETING[..10] {
            let _ = dripping.write_all(&[*byte]);
            thread::sleep(Duration::from_millis(700));
        }
    });
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).expect("it is closed");
    assert_eq!(greeting.len(), GREETING.len());
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    drip.join().expect("no panic");
    wait_for(&run.lines, "it did not complete the handshake");
    assert_eq!(run.lines.lock().expect("no panic").len(), 2, "both are logged");
    run.starts();
}

#[test]
fn duplicate_rank_or_wrong_count_is_rejected() {
    let (own, lines) = logged(options());
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
            assert!(error.to_string().contains("rank 1 joined twice: from host"), "{error}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1);
    assert!(first.join().expect("no panic").is_ok() && third.join().expect("no panic").is_ok());
    assert_eq!(lines.lock().expect("no panic").len(), 2, "one line each");
}

//! Rendezvous of the ranks of a group, hosted by the process that created the identifier.

use std::collections::hash_map::RandomState;
use std::ffi::c_int;
use std::fs;
use std::hash::BuildHasher;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use crate::interface;
use crate::report::{Failure, INVALID_USAGE, REMOTE, SYSTEM, failure, misuse};
use crate::wire::{receive_text, send_text};

const MAGIC: [u8; 8] = *b"TESTNCCL";
/// Timeout for the first message of a new connection.
const PATIENCE: Duration = Duration::from_secs(5);
const COME: &str = "come";

/// `ncclUniqueId`: the rendezvous address, and a nonce that authenticates peers.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UniqueId(pub [u8; 128]);

impl UniqueId {
    fn new(nonce: u64, at: SocketAddrV4) -> Self {
        let mut bytes = [0; 128];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&nonce.to_le_bytes());
        bytes[16..20].copy_from_slice(&at.ip().octets());
        bytes[20..22].copy_from_slice(&at.port().to_le_bytes());
        Self(bytes)
    }

    fn parts(&self) -> Option<(u64, SocketAddrV4)> {
        let (words, rest) = self.0.as_chunks::<8>();
        let nonce = u64::from_le_bytes(words[1]);
        let [a, b, c, d, port @ .., _, _] = words[2];
        let at = SocketAddrV4::new(Ipv4Addr::new(a, b, c, d), u16::from_le_bytes(port));
        (rest.is_empty() && words[0] == MAGIC).then_some((nonce, at))
    }
}

/// A rank's introduction.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Hello {
    rank: usize,
    count: usize,
    /// Address where rank 0 waits for the others.
    at: String,
    /// Host and GPU; empty if ranks may share a GPU.
    device: String,
}

/// Opens a rendezvous, which a thread of this process serves.
pub(crate) fn open() -> Result<UniqueId, Failure> {
    let (listener, at) = listen()?;
    let nonce = RandomState::new().hash_one(at);
    let run = move || host(&listener, nonce);
    let spawned = thread::Builder::new().name("nccl rendezvous".into()).spawn(run);
    spawned.map_err(|e| failure(SYSTEM, e.to_string()))?;
    Ok(UniqueId::new(nonce, at))
}

/// Waits for all ranks, without a timeout; returns this rank's connections to other ranks. `device`
/// is the number of this rank's GPU in this process.
pub(crate) fn meet(
    id: &UniqueId,
    [rank, count]: [usize; 2],
    device: c_int,
) -> Result<Vec<(usize, TcpStream)>, Failure> {
    let Some((nonce, meeting)) = id.parts() else {
        return Err(misuse(INVALID_USAGE, "the identifier is not from ncclGetUniqueId"));
    };
    let lost = |e: io::Error| failure(REMOTE, format!("joining the group failed: {e}"));
    let (listener, at) = listen()?;
    let root = TcpStream::connect(meeting).map_err(lost)?;
    let device = identity(device);
    send_text(&root, &format!("{nonce}\n{rank}\n{count}\n{at}\n{device}")).map_err(lost)?;
    let answer = receive_text(&root).map_err(lost)?;
    let Some((COME, first)) = answer.split_once('\n') else {
        return Err(misuse(INVALID_USAGE, answer));
    };
    if rank > 0 {
        let stream = TcpStream::connect(first).map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        send_text(&stream, &format!("{nonce}\n{rank}")).map_err(lost)?;
        return Ok(vec![(0, stream)]);
    }
    let mut peers = vec![];
    while peers.len() + 1 < count {
        let (stream, _) = listener.accept().map_err(lost)?;
        stream.set_nodelay(true).map_err(lost)?;
        let said = introduction(&stream, nonce);
        peers.extend(said.and_then(|rank| Some((rank.parse().ok()?, stream))));
    }
    peers.sort_by_key(|(rank, _)| *rank);
    Ok(peers)
}

fn listen() -> Result<(TcpListener, SocketAddrV4), Failure> {
    let none = "no socket interface found (NCCL_SOCKET_IFNAME)";
    let ip = interface::address().ok_or_else(|| failure(INVALID_USAGE, none))?;
    let bound = TcpListener::bind((ip, 0)).and_then(|listener| match listener.local_addr()? {
        SocketAddr::V4(at) => Ok((listener, at)),
        SocketAddr::V6(_) => Err(io::Error::other("no IPv4 address")),
    });
    bound.map_err(|e| failure(SYSTEM, format!("listening at {ip}: {e}")))
}

/// The host and the GPU, independent of the GPU's number in this process.
fn identity(device: c_int) -> String {
    if std::env::var("NCCL_MULTI_RANK_GPU_ENABLE").is_ok_and(|value| value == "1") {
        return String::new();
    }
    let host = std::env::var("NCCL_HOSTID").unwrap_or_else(|_| {
        let files = ["/proc/sys/kernel/hostname", "/proc/sys/kernel/random/boot_id"];
        files.map(|file| fs::read_to_string(file).unwrap_or_default().trim().to_owned()).join(" ")
    });
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let number = usize::try_from(device).ok().and_then(|i| visible.split(',').nth(i));
    let number = number.map(str::trim).filter(|number| !number.is_empty());
    format!("GPU {} of {host}", number.map_or(device.to_string(), str::to_owned))
}

/// The text that a connection sends after the nonce.
fn introduction(stream: &TcpStream, nonce: u64) -> Option<String> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let said = receive_text(stream).ok()?;
    stream.set_read_timeout(None).ok()?;
    said.strip_prefix(&format!("{nonce}\n")).map(str::to_owned)
}

/// Serves the rendezvous of one group, and rejects all later connections.
fn host(listener: &TcpListener, nonce: u64) {
    let mut there: Vec<(Hello, TcpStream)> = vec![];
    let mut refusal = None;
    for stream in listener.incoming().flatten() {
        let Some(hello) = introduction(&stream, nonce).and_then(|said| parse(&said)) else {
            continue;
        };
        if refusal.is_none() {
            refusal = clash(&there, &hello);
        }
        there.push((hello, stream));
        there.sort_by_key(|(hello, _)| hello.rank);
        let answer = match &refusal {
            Some(text) => text.clone(),
            None if there.len() < there[0].0.count => continue,
            None => shared_device(&there).unwrap_or_else(|| format!("{COME}\n{}", there[0].0.at)),
        };
        // Send errors are ignored: the other ranks detect later that a rank has exited.
        there.drain(..).for_each(|(_, stream)| drop(send_text(&stream, &answer)));
        refusal.get_or_insert_with(|| "the identifier was already used for a group".to_owned());
    }
}

fn parse(said: &str) -> Option<Hello> {
    let fields: Vec<&str> = said.split('\n').collect();
    let [rank, count, at, device] = fields[..] else { return None };
    let (rank, count) = (rank.parse().ok()?, count.parse().ok()?);
    Some(Hello { rank, count, at: at.into(), device: device.into() })
}

fn clash(there: &[(Hello, TcpStream)], new: &Hello) -> Option<String> {
    there.iter().find_map(|(old, _)| {
        if old.count != new.count {
            Some(format!(
                "rank {} expects {} ranks, rank {} expects {}",
                old.rank, old.count, new.rank, new.count
            ))
        } else {
            (old.rank == new.rank).then(|| format!("rank {} has joined twice", old.rank))
        }
    })
}

fn shared_device(there: &[(Hello, TcpStream)]) -> Option<String> {
    there.iter().enumerate().find_map(|(i, (a, _))| {
        let same = |(b, _): &&(Hello, TcpStream)| !a.device.is_empty() && a.device == b.device;
        let (b, _) = there[..i].iter().find(same)?;
        Some(format!("ranks {} and {} are both on {}", b.rank, a.rank, a.device))
    })
}

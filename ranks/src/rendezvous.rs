//! The rendezvous address of the ranks, and the token that authenticates them.
//!
//! On one node no settings are needed: rank 0 listens on an abstract Unix socket (unix(7)), which
//! has a name instead of a file. The name is derived from the launcher's job, so that runs do not
//! mix. Each side checks that its peer is a process of the same user.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::RanksError;
use crate::launch::{Launch, Launcher};
use crate::options::JoinOptions;

/// Maximum size of the token file.
const MAX_FILE_BYTES: u64 = 4096;

/// Minimum length of a token, because shorter tokens can be guessed.
const MIN_TOKEN_CHARS: usize = 8;

/// The address of rank 0, and the token.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    place: Place,
    pub(crate) token: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// `HOST:PORT`.
    Network(String),
    /// On this host: the name of a Unix socket.
    Machine(String),
}

/// Rank 0's listening socket.
#[derive(Debug)]
pub(crate) enum Listener {
    Network(TcpListener),
    Machine(UnixListener),
}

impl Rendezvous {
    /// # Errors
    /// If ranks on several hosts have no address or no token.
    pub(crate) fn find(launch: &Launch, options: &JoinOptions) -> Result<Self, RanksError> {
        let read = |name: &str| (options.lookup)(name).filter(|value| !value.trim().is_empty());
        let token = token_from(&read)?;
        if let Some(token) = &token
            && token.chars().count() < MIN_TOKEN_CHARS
        {
            return Err(RanksError::Join(format!(
                "the token has fewer than {MIN_TOKEN_CHARS} characters; make one with `openssl \
                 rand -hex 16`"
            )));
        }
        match (address_from(launch, &read)?, token) {
            (Some(address), Some(token)) => Ok(Self { place: Place::Network(address), token }),
            _ if launch.on_one_node() => {
                let name = name_of(launch, &read);
                Ok(Self { place: Place::Machine(name.clone()), token: name })
            }
            _ => Err(RanksError::Join(
                "the ranks are on several hosts and share no token; set ONEGRAPH_TOKEN to one \
                 secret on all ranks (`openssl rand -hex 16` makes one), or ONEGRAPH_TOKEN_FILE \
                 to a file that holds it"
                    .into(),
            )),
        }
    }

    /// Opens rank 0's listening socket, which is non-blocking.
    ///
    /// # Errors
    /// If the port or the name is in use.
    pub(crate) fn listen(&self) -> Result<Listener, RanksError> {
        let listening = match &self.place {
            Place::Network(address) => {
                let listener = bind(address)?;
                listener.set_nonblocking(true).map(|()| Listener::Network(listener))
            }
            Place::Machine(name) => LocalAddr::from_abstract_name(name)
                .and_then(|name| UnixListener::bind_addr(&name))
                .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
                .map(Listener::Machine),
        };
        listening.map_err(|error| {
            RanksError::Launcher(format!(
                "rank 0 cannot listen ({error}): give each run its own MASTER_PORT, and start only \
                 one rank 0"
            ))
        })
    }

    /// Tries once to connect to rank 0 at each of its addresses. `reached` gets the connection; if
    /// `reached` fails, the next address is tried.
    ///
    /// # Errors
    /// The reason why rank 0 was not reached.
    pub(crate) fn reach<T>(
        &self,
        limit: Duration,
        reached: impl Fn(TcpStream) -> Result<T, String>,
    ) -> Result<T, String> {
        let address = match &self.place {
            Place::Network(address) => address,
            Place::Machine(name) => {
                let connected = LocalAddr::from_abstract_name(name)
                    .and_then(|name| UnixStream::connect_addr(&name))
                    .and_then(of_own_user);
                let stream = connected.map_err(|error| {
                    format!(
                        "{error} (where each rank has its own launcher, set MASTER_PORT to one \
                         free port for all)"
                    )
                })?;
                return reached(stream);
            }
        };
        let addresses = address.to_socket_addrs().map_err(|error| format!("{address}: {error}"))?;
        let mut why = "the name has no address".to_owned();
        for one in addresses {
            let connected = TcpStream::connect_timeout(&one, limit);
            let result = match connected.map_err(|error| error.to_string()) {
                // A connection to a port of this host that has no listener may connect to itself.
                Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                    Err("no process listens".into())
                }
                Ok(stream) => reached(stream),
                Err(error) => Err(error),
            };
            match result {
                Ok(value) => return Ok(value),
                Err(error) => why = error,
            }
        }
        Err(format!("{address}: {why}"))
    }
}

impl Listener {
    /// The next connection and the peer's address; `WouldBlock` if no connection waits.
    pub(crate) fn accept(&self) -> io::Result<(TcpStream, String)> {
        let (stream, from) = match self {
            Self::Network(listener) => {
                let (stream, from) = listener.accept()?;
                // IPv4 addresses appear as IPv6 if rank 0 listens on both.
                let from = SocketAddr::new(from.ip().to_canonical(), from.port());
                (stream, from.to_string())
            }
            Self::Machine(listener) => {
                (of_own_user(listener.accept()?.0)?, "this machine".to_owned())
            }
        };
        stream.set_nonblocking(false)?;
        Ok((stream, from))
    }
}

/// Accepts a connection within this host if the peer's process has the same user. It becomes a
/// `TcpStream`, which works for any stream socket: receive, send, shut down.
fn of_own_user(stream: UnixStream) -> io::Result<TcpStream> {
    let user = rustix::net::sockopt::socket_peercred(&stream)?.uid;
    if user != rustix::process::geteuid() {
        return Err(io::Error::other(format!("the peer belongs to user {}", user.as_raw())));
    }
    Ok(TcpStream::from(OwnedFd::from(stream)))
}

fn bind(address: &str) -> Result<TcpListener, RanksError> {
    let (ip, port) = bind_address(address);
    let Ok(number) = port.parse() else {
        return Err(RanksError::Launcher(format!("`{address}` is not an address of rank 0")));
    };
    // The IPv6 wildcard also accepts IPv4 connections; without IPv6, the IPv4 wildcard is used.
    let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
    let ips = ip.map_or(all.to_vec(), |ip| vec![ip]);
    let candidates: Vec<SocketAddr> =
        ips.into_iter().map(|ip| SocketAddr::new(ip, number)).collect();
    TcpListener::bind(&candidates[..]).map_err(|error| {
        RanksError::Launcher(match error.kind() {
            ErrorKind::AddrInUse => format!(
                "rank 0 cannot listen on port {port}: it is in use (by another run?); set \
                 MASTER_PORT to a free port, the same on all ranks"
            ),
            _ => format!("rank 0 cannot listen on port {port}: {error}; set MASTER_PORT"),
        })
    })
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Rank 0's address; `None` on one node, where a Unix socket is used.
fn address_from(launch: &Launch, read: Lookup<'_>) -> Result<Option<String>, RanksError> {
    let host = read("MASTER_ADDR");
    let port = read("MASTER_PORT").map(|port| {
        port.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
            RanksError::Launcher(format!(
                "MASTER_PORT is `{port}`; set it to a port from 1 to 65535"
            ))
        })
    });
    match (host, port.transpose()?) {
        // torchrun's own rendezvous listens on this port.
        (Some(host), Some(port)) if is_true(read("TORCHELASTIC_USE_AGENT_STORE")) => {
            let next = port.checked_add(1).unwrap_or(port - 1);
            Ok((!launch.on_one_node()).then(|| join_host(&host, next)))
        }
        (Some(host), Some(port)) => Ok(Some(join_host(&host, port))),
        (None, Some(port)) if launch.on_one_node() => Ok(Some(join_host("127.0.0.1", port))),
        (Some(host), None) if !launch.on_one_node() => Err(RanksError::Launcher(format!(
            "MASTER_ADDR is set ({host}) but MASTER_PORT is not; set it to a free port of that \
             host, such as 29500, the same on all ranks"
        ))),
        _ if launch.on_one_node() => Ok(None),
        _ if launch.launcher == Launcher::Slurm => slurm_address(read).map(Some),
        _ => Err(RanksError::Launcher(
            "the ranks are on several hosts; set MASTER_ADDR to the name or address of rank 0's \
             host and MASTER_PORT to a free port there, such as 29500, the same on all ranks"
                .into(),
        )),
    }
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Rank 0's address in a Slurm step: the step's first node, and a port derived from job and step.
fn slurm_address(read: Lookup<'_>) -> Result<String, RanksError> {
    let nodes = read("SLURM_STEP_NODELIST").unwrap_or_default();
    let Some(host) = first_host(&nodes) else {
        return Err(RanksError::Launcher(format!(
            "cannot read the first host from SLURM_STEP_NODELIST=`{nodes}`; set MASTER_ADDR to rank \
             0's host and MASTER_PORT to a free port there"
        )));
    };
    let number = |name| read(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let port = 20_000 + (number("SLURM_JOB_ID") * 31 + number("SLURM_STEP_ID")) % 10_000;
    Ok(format!("{host}:{port}"))
}

/// The first host in Slurm's list, such as `a03-x` in `a[03-07,9]-x,b`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        None => name.to_owned(),
        Some(rest) => {
            let (numbers, after) = rest.split_once(']')?;
            let suffix = after.split(',').next().unwrap_or_default();
            if suffix.contains('[') {
                return None;
            }
            format!("{name}{}{suffix}", numbers.split(['-', ',']).next()?)
        }
    };
    (!host.is_empty()).then_some(host)
}

fn join_host(host: &str, port: u16) -> String {
    let host = host.trim().trim_start_matches('[').trim_end_matches(']');
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// IP and port that rank 0 binds for an address. The IP is `None` (all interfaces) unless it is a
/// loopback address, because the name may resolve to this host only on other hosts.
fn bind_address(address: &str) -> (Option<IpAddr>, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let ip = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok(),
    };
    (ip.filter(IpAddr::is_loopback), port)
}

/// The token from the environment, from a file, or from Open MPI's random key of the job.
fn token_from(read: Lookup<'_>) -> Result<Option<String>, RanksError> {
    if let Some(token) = read("ONEGRAPH_TOKEN") {
        return Ok(Some(token.trim().to_owned()));
    }
    let Some(path) = read("ONEGRAPH_TOKEN_FILE") else {
        return Ok(read("OMPI_MCA_orte_precondition_transports"));
    };
    let mut text = String::new();
    let taken = File::open(&path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
        .map_err(|error| format!("cannot be read ({error})"));
    let why = match (taken, text.trim()) {
        (Ok(_), "") => "is empty".into(),
        (Ok(_), token) => return Ok(Some(token.into())),
        (Err(why), _) => why,
    };
    Err(RanksError::Join(format!(
        "{path}: {why}; ONEGRAPH_TOKEN_FILE must name a file that holds the token of the run"
    )))
}

/// The Unix socket name for the launcher's job.
fn name_of(launch: &Launch, read: Lookup<'_>) -> String {
    let names: &[&str] = match launch.launcher {
        Launcher::OpenMpi => {
            &["PMIX_NAMESPACE", "OMPI_MCA_orte_hnp_uri", "OMPI_MCA_orte_precondition_transports"]
        }
        Launcher::Slurm => &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        Launcher::Torchrun => {
            &["ONEGRAPH_JOB", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_PORT"]
        }
        Launcher::Pmi | Launcher::None => &["ONEGRAPH_JOB", "PMI_PORT"],
    };
    let mut job: Vec<String> = names.iter().filter_map(|name| read(name)).collect();
    if job.is_empty() {
        // All ranks of a node are children of one launcher process.
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        job.push(format!("parent {parent}"));
    }
    let user = rustix::process::geteuid().as_raw();
    format!("onegraph-{user}-{}", hex::encode(&Sha256::digest(job.join("\n"))[..8]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{Place, Rendezvous, first_host};
    use crate::launch::{Launch, Launcher};
    use crate::options::JoinOptions;

    /// The rendezvous that rank 0 of two ranks finds with these variables.
    fn find(local_ranks: usize, launcher: Launcher, set: &str) -> Result<Rendezvous, String> {
        let launch = Launch { rank: 0, ranks: 2, local_rank: 0, local_ranks, launcher };
        let set = set.to_owned();
        let lookup = move |name: &str| {
            let mut set = set.split(' ').filter_map(|pair| pair.split_once('='));
            set.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        let options = JoinOptions { lookup: Arc::new(lookup), ..JoinOptions::default() };
        Rendezvous::find(&launch, &options).map_err(|error| error.to_string())
    }

    #[test]
    fn rendezvous_address_is_given_derived_or_requested() {
        let (one, two, slurm) =
            ((2, Launcher::Torchrun), (1, Launcher::Torchrun), (1, Launcher::Slurm));
        let token = "ONEGRAPH_TOKEN=0123456789abcdef";
        for ((local_ranks, launcher), variables, expected) in [
            (one, "", Ok(None)),
            (one, "MASTER_PORT=4000", Ok(Some("127.0.0.1:4000"))),
            (one, "MASTER_ADDR=localhost MASTER_PORT=4000", Ok(Some("localhost:4000"))),
            (two, "MASTER_ADDR=a MASTER_PORT=4000", Ok(Some("a:4000"))),
            (two, "MASTER_ADDR=fd00::1 MASTER_PORT=4000", Ok(Some("[fd00::1]:4000"))),
            // torchrun's own store listens on this port.
            (one, "MASTER_ADDR=a MASTER_PORT=4000 TORCHELASTIC_USE_AGENT_STORE=True", Ok(None)),
            (
                two,
                "MASTER_ADDR=a MASTER_PORT=4000 TORCHELASTIC_USE_AGENT_STORE=True",
                Ok(Some("a:4001")),
            ),
            (
                slurm,
                "SLURM_STEP_NODELIST=gpu[07-09] SLURM_JOB_ID=2 SLURM_STEP_ID=1",
                Ok(Some("gpu07:20063")),
            ),
            (two, "", Err("set MASTER_ADDR to the name or address of rank 0's host")),
            (two, "MASTER_PORT=4000", Err("set MASTER_ADDR")),
            (two, "MASTER_ADDR=a", Err("MASTER_ADDR is set (a) but MASTER_PORT is not")),
            (one, "MASTER_PORT=x", Err("MASTER_PORT is `x`; set it to a port")),
            (two, "MASTER_ADDR=a MASTER_PORT=0", Err("MASTER_PORT is `0`")),
            (slurm, "SLURM_STEP_NODELIST=a[1-2]b[1-2]", Err("cannot read the first host")),
        ] {
            let found = find(local_ranks, launcher, &format!("{variables} {token}"));
            match (found.map(|found| found.place), expected) {
                (Ok(Place::Network(found)), Ok(Some(expected))) => assert_eq!(found, expected),
                (Ok(Place::Machine(_)), Ok(None)) => {}
                (Err(error), Err(said)) => assert!(error.contains(said), "{error}"),
                (found, expected) => panic!("{variables}: {found:?}, not {expected:?}"),
            }
        }
        for (list, host) in [
            ("a", Some("a")),
            ("a,b", Some("a")),
            ("n[03-07,9],m1", Some("n03")),
            ("n[5]-ib,m", Some("n5-ib")),
            ("", None),
            ("n[1-2", None),
        ] {
            assert_eq!(first_host(list).as_deref(), host, "{list}");
        }
    }

    #[test]
    fn missing_or_weak_token_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        std::fs::write(&file, "  secret of the run\n").expect("written");
        let file = file.display();
        for (token, expected) in [
            ("", Err("share no token; set ONEGRAPH_TOKEN")),
            ("ONEGRAPH_TOKEN=x", Err("fewer than 8 characters")),
            ("ONEGRAPH_TOKEN_FILE=none", Err("none: cannot be read")),
            ("ONEGRAPH_TOKEN=0123456789", Ok("0123456789")),
            ("OMPI_MCA_orte_precondition_transports=00-11-22-33", Ok("00-11-22-33")),
            (&format!("ONEGRAPH_TOKEN_FILE={file}"), Ok("secret of the run")),
        ] {
            let master = "MASTER_ADDR=a MASTER_PORT=4000";
            let found = find(1, Launcher::OpenMpi, &format!("{master} {token}"));
            match (found.map(|found| found.token), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(said)) => assert!(error.contains(said), "{error}"),
                (found, expected) => panic!("{token}: {found:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn rank0_listens_on_configured_address_or_reports_why_not() {
        let serve = |address: &str| {
            let meeting =
                Rendezvous { place: Place::Network(address.into()), token: "0123456789".into() };
            meeting.listen().map_err(|error| error.to_string())
        };
        let ip = |address: &str| match serve(address).expect("it listens") {
            super::Listener::Network(listener) => listener.local_addr().expect("an address").ip(),
            other => panic!("{other:?}"),
        };
        assert!(["localhost:0", "127.0.0.1:0"].iter().all(|own| ip(own).is_loopback()));
        for name in ["some-host:0", "10.1.2.3:0", "[fd00::1]:0"] {
            assert!(ip(name).is_unspecified(), "its name may be one that only others know: {name}");
        }
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let taken = taken.local_addr().expect("an address");
        let error = serve(&taken.to_string()).expect_err("it is taken");
        let said = format!("rank 0 cannot listen on port {}: it is in use", taken.port());
        assert!(error.starts_with(&said), "{error}");

        let name = format!("ONEGRAPH_JOB={}", std::process::id());
        let one = || find(2, Launcher::Torchrun, &name).expect("nothing need be set");
        let _first = one().listen().expect("it listens");
        let error = one().listen().expect_err("there is a rank 0").to_string();
        assert!(error.starts_with("rank 0 cannot listen (") && error.contains("only one rank 0"));
        let other = find(2, Launcher::Torchrun, "ONEGRAPH_JOB=y").expect("a name").place;
        assert_ne!(one().place, other, "another run has another name");
    }
}

//! Where the ranks meet, and the secret by which they know each other.
//!
//! On one node nothing need be set: rank 0 listens on a free port of the loopback device, and
//! leaves port and a random token in a file that only the user may read. Its name is derived from
//! the launcher's job, so two runs do not meet. The file of a dead run is overwritten or, as its
//! token fits no other run, ignored.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::error::RanksError;
use crate::handshake::random;
use crate::launch::{Launch, Launcher};
use crate::options::JoinOptions;

/// The longest rendezvous or token file.
const MAX_FILE_BYTES: u64 = 4096;

/// The shortest token that is accepted: shorter ones can be guessed.
const MIN_TOKEN_CHARS: usize = 8;

/// The settings that are known before the ranks meet.
#[derive(Debug)]
pub(crate) struct Rendezvous {
    /// `HOST:PORT`, if it is given.
    address: Option<String>,
    token: Option<String>,
    /// The file that gives what is not given.
    file: Option<PathBuf>,
}

/// Rank 0's end: dropped when all have met, with its file.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) listener: TcpListener,
    pub(crate) token: String,
    file: Option<(PathBuf, String)>,
}

impl Drop for Served {
    /// Takes the file away, unless another run has put its own there.
    fn drop(&mut self) {
        if let Some((path, text)) = &self.file
            && fs::read_to_string(path).is_ok_and(|found| found == *text)
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Rendezvous {
    /// # Errors
    /// If ranks on several hosts have no address or no token.
    pub(crate) fn find(launch: &Launch, options: &JoinOptions) -> Result<Self, RanksError> {
        let read = |name: &str| (options.lookup)(name).filter(|value| !value.trim().is_empty());
        let address = match &options.address {
            Some(address) => Some(address.clone()),
            None => address_from(launch, &read)?,
        };
        let token = match &options.token {
            Some(token) => Some(token.clone()),
            None => token_from(&read)?,
        };
        if let Some(token) = &token
            && token.chars().count() < MIN_TOKEN_CHARS
        {
            return Err(RanksError::Token(format!(
                "the token has fewer than {MIN_TOKEN_CHARS} characters; make one with `openssl \
                 rand -hex 16`"
            )));
        }
        if !launch.on_one_node() && token.is_none() {
            return Err(RanksError::Token(
                "the ranks are on several hosts and share no token; set ONEGRAPH_TOKEN to one \
                 secret on all ranks (`openssl rand -hex 16` makes one), or ONEGRAPH_TOKEN_FILE \
                 to a file that holds it"
                    .into(),
            ));
        }
        let wants_file = address.is_none() || token.is_none();
        let file = wants_file.then(|| file_of(launch, &read));
        Ok(Self { address, token, file })
    }

    /// Rank 0 listens.
    ///
    /// # Errors
    /// If the port is taken, or the file cannot be written.
    pub(crate) fn serve(&self) -> Result<Served, RanksError> {
        let address = self.address.as_deref();
        let (ip, port) = address.map_or((Some(Ipv4Addr::LOCALHOST.into()), "0"), bind_address);
        let Ok(number) = port.parse() else {
            return Err(RanksError::Address(format!(
                "`{}` is no address of rank 0; give HOST:PORT",
                address.unwrap_or_default()
            )));
        };
        // All of IPv6 takes IPv4, too; without IPv6 all of IPv4 does.
        let all = [IpAddr::from(Ipv6Addr::UNSPECIFIED), IpAddr::from(Ipv4Addr::UNSPECIFIED)];
        let ips = ip.map_or(all.to_vec(), |ip| vec![ip]);
        let candidates: Vec<SocketAddr> =
            ips.into_iter().map(|ip| SocketAddr::new(ip, number)).collect();
        let listener = TcpListener::bind(&candidates[..]).map_err(|error| {
            RanksError::Address(match error.kind() {
                ErrorKind::AddrInUse => format!(
                    "rank 0 cannot listen on port {port}: another process does (another run?); \
                     set MASTER_PORT to a free port, the same on all ranks"
                ),
                _ => format!("rank 0 cannot listen on port {port}: {error}; set MASTER_PORT"),
            })
        })?;
        let fault = |error| RanksError::Address(format!("rank 0 cannot listen: {error}"));
        listener.set_nonblocking(true).map_err(fault)?;
        let token = match &self.token {
            Some(token) => token.clone(),
            None => hex::encode(random().map_err(fault)?),
        };
        let mut served = Served { listener, token, file: None };
        if let Some(path) = &self.file {
            let own = format!("127.0.0.1:{}", served.listener.local_addr().map_err(fault)?.port());
            let text = format!("{}\n{}\n", address.unwrap_or(&own), served.token);
            write_private(path, &text).map_err(|error| {
                RanksError::Address(format!(
                    "{}: cannot be written ({error}), and the ranks find rank 0 by it; remove it, \
                     or set MASTER_ADDR, MASTER_PORT and ONEGRAPH_TOKEN",
                    path.display()
                ))
            })?;
            served.file = Some((path.clone(), text));
        }
        Ok(served)
    }

    /// Address and token, as far as they are known now.
    ///
    /// # Errors
    /// In words: what is missing.
    pub(crate) fn look(&self) -> Result<(String, String), String> {
        let Some(path) = &self.file else {
            // Without a file both are given.
            return Ok((
                self.address.clone().unwrap_or_default(),
                self.token.clone().unwrap_or_default(),
            ));
        };
        let text = read_private(path)?;
        let mut lines = text.lines();
        let (Some(address), Some(token)) = (lines.next(), lines.next()) else {
            return Err(format!("{} is cut off", path.display()));
        };
        let given = |given: &Option<String>, read: &str| given.clone().unwrap_or(read.to_owned());
        Ok((given(&self.address, address), given(&self.token, token)))
    }
}

type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// None on one node, where a file does.
fn address_from(launch: &Launch, read: Lookup<'_>) -> Result<Option<String>, RanksError> {
    let host = read("MASTER_ADDR");
    let port = read("MASTER_PORT").map(|port| {
        port.trim().parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(|| {
            RanksError::Address(format!(
                "MASTER_PORT is `{port}`; set it to a port from 1 to 65535"
            ))
        })
    });
    match (host, port.transpose()?) {
        // torchrun serves its own rendezvous there.
        (Some(host), Some(port)) if is_true(read("TORCHELASTIC_USE_AGENT_STORE")) => {
            let next = port.checked_add(1).unwrap_or(port - 1);
            Ok((!launch.on_one_node()).then(|| join_host(&host, next)))
        }
        (Some(host), Some(port)) => Ok(Some(join_host(&host, port))),
        (None, Some(port)) if launch.on_one_node() => Ok(Some(join_host("127.0.0.1", port))),
        (Some(host), None) if !launch.on_one_node() => Err(RanksError::Address(format!(
            "MASTER_ADDR is set ({host}) but MASTER_PORT is not; set it to a free port of that \
             host, such as 29500, the same on all ranks"
        ))),
        _ if launch.on_one_node() => Ok(None),
        _ if launch.launcher == Launcher::Slurm => slurm_address(read).map(Some),
        _ => Err(RanksError::Address(
            "the ranks are on several hosts; set MASTER_ADDR to the name or address of rank 0's \
             host and MASTER_PORT to a free port there, such as 29500, the same on all ranks"
                .into(),
        )),
    }
}

fn is_true(value: Option<String>) -> bool {
    value.is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

/// Rank 0 is a task of the step's first node. The port is derived from job and step.
fn slurm_address(read: Lookup<'_>) -> Result<String, RanksError> {
    let nodes = read("SLURM_STEP_NODELIST").unwrap_or_default();
    let Some(host) = first_host(&nodes) else {
        return Err(RanksError::Address(format!(
            "SLURM_STEP_NODELIST is `{nodes}`, which names no first host; set MASTER_ADDR to rank \
             0's host and MASTER_PORT to a free port there"
        )));
    };
    let number = |name| read(name).and_then(|value| value.parse::<u64>().ok()).unwrap_or(0);
    let port = 20_000 + (number("SLURM_JOB_ID") * 31 + number("SLURM_STEP_ID")) % 10_000;
    Ok(format!("{host}:{port}"))
}

/// The first of Slurm's list of hosts: `a[03-07,9]-x,b` is `a03-x` first.
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

/// IP and port on which rank 0 listens for an address: loopback as it is, else none, for all
/// interfaces, as the name may be one that only the others resolve to this host.
fn bind_address(address: &str) -> (Option<IpAddr>, &str) {
    let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
    let ip = match host {
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        _ => host.trim_start_matches('[').trim_end_matches(']').parse().ok(),
    };
    (ip.filter(IpAddr::is_loopback), port)
}

/// From the environment, a file, or the random key of each job of Open MPI.
fn token_from(read: Lookup<'_>) -> Result<Option<String>, RanksError> {
    if let Some(token) = read("ONEGRAPH_TOKEN") {
        return Ok(Some(token.trim().to_owned()));
    }
    if let Some(path) = read("ONEGRAPH_TOKEN_FILE") {
        let fault = |why: String| {
            RanksError::Token(format!(
                "{path}: {why}; ONEGRAPH_TOKEN_FILE must name a file that \
                 holds the token of the run"
            ))
        };
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text))
            .map_err(|error| fault(format!("cannot be read ({error})")))?;
        let token = text.trim();
        return if token.is_empty() {
            Err(fault("is empty".into()))
        } else {
            Ok(Some(token.into()))
        };
    }
    Ok(read("OMPI_MCA_orte_precondition_transports"))
}

/// The file of the launcher's job, in the user's folder for such files if there is one.
fn file_of(launch: &Launch, read: Lookup<'_>) -> PathBuf {
    let folder = read("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_dir());
    let folder = folder.unwrap_or_else(std::env::temp_dir);
    let user = rustix::process::geteuid().as_raw();
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
        // All ranks of a node are children of one process of the launcher's.
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        job.push(format!("parent {parent}"));
    }
    let digest = Sha256::digest(job.join("\n"));
    folder.join(format!("onegraph-{user}-{}.ranks", hex::encode(&digest[..8])))
}

/// Puts a file of mode 0600 there at once, whole.
fn write_private(path: &PathBuf, text: &str) -> std::io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    // A process of this number that died here may have left one.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&beside, path).inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })
}

/// Reads a file that is the user's and nobody else's to write or read.
fn read_private(path: &PathBuf) -> Result<String, String> {
    let shown = path.display();
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path);
    let file = file.map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "rank 0 has not written {shown} yet (where each rank has its own launcher, set \
             MASTER_PORT to one free port for all)"
        ),
        _ => format!("{shown}: {error}"),
    })?;
    let metadata = file.metadata().map_err(|error| format!("{shown}: {error}"))?;
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_file() || !is_own || metadata.mode() & 0o077 != 0 {
        return Err(format!("{shown} is not a private file of this user; remove it"));
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES)
        .read_to_string(&mut text)
        .map_err(|error| format!("{shown}: {error}"))?;
    Ok(text)
}

#[cfg(test)]
mod tests;

//! Addresses, tokens and files of the rendezvous.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use super::{Rendezvous, first_host};
use crate::launch::{Launch, Launcher};
use crate::options::JoinOptions;

fn launch(ranks: usize, local_ranks: usize, launcher: Launcher) -> Launch {
    Launch { rank: 0, ranks, local_rank: 0, local_ranks, launcher }
}

fn options(variables: &str) -> JoinOptions {
    let variables = variables.to_owned();
    let lookup = move |name: &str| {
        let mut set = variables.split(' ').filter_map(|pair| pair.split_once('='));
        set.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    };
    JoinOptions { lookup: Arc::new(lookup), ..JoinOptions::default() }
}

fn address(launch: &Launch, variables: &str) -> Result<Option<String>, String> {
    let found = Rendezvous::find(launch, &options(variables));
    found.map(|found| found.address).map_err(|error| error.to_string())
}

#[test]
fn the_address_is_given_or_derived_or_asked_for() {
    let (one, two) = (launch(2, 2, Launcher::Torchrun), launch(2, 1, Launcher::Torchrun));
    let slurm = launch(4, 2, Launcher::Slurm);
    let token = "ONEGRAPH_TOKEN=0123456789abcdef";
    for (launch, variables, expected) in [
        (&one, "", None),
        (&one, "MASTER_PORT=4000", Some("127.0.0.1:4000")),
        (&one, "MASTER_ADDR=localhost MASTER_PORT=4000", Some("localhost:4000")),
        (&two, "MASTER_ADDR=a MASTER_PORT=4000", Some("a:4000")),
        (&two, "MASTER_ADDR=fd00::1 MASTER_PORT=4000", Some("[fd00::1]:4000")),
        // torchrun's own store listens on the port.
        (&one, "MASTER_ADDR=a MASTER_PORT=4000 TORCHELASTIC_USE_AGENT_STORE=True", None),
        (&two, "MASTER_ADDR=a MASTER_PORT=4000 TORCHELASTIC_USE_AGENT_STORE=True", Some("a:4001")),
        (
            &slurm,
            "SLURM_STEP_NODELIST=gpu[07-09] SLURM_JOB_ID=2 SLURM_STEP_ID=1",
            Some("gpu07:20063"),
        ),
    ] {
        let found = address(launch, &format!("{variables} {token}"));
        assert_eq!(found, Ok(expected.map(str::to_owned)), "{variables}");
    }
    for (launch, variables, said) in [
        (&two, "", "set MASTER_ADDR to the name or address of rank 0's host"),
        (&two, "MASTER_PORT=4000", "set MASTER_ADDR"),
        (&two, "MASTER_ADDR=a", "MASTER_ADDR is set (a) but MASTER_PORT is not"),
        (&one, "MASTER_PORT=x", "MASTER_PORT is `x`; set it to a port"),
        (&two, "MASTER_ADDR=a MASTER_PORT=0", "MASTER_PORT is `0`"),
        (&slurm, "SLURM_STEP_NODELIST=a[1-2]b[1-2]", "names no first host"),
    ] {
        let error = address(launch, &format!("{variables} {token}")).expect_err(variables);
        assert!(error.contains(said), "{variables}: {error}");
    }
}

#[test]
fn the_first_host_of_slurms_list_is_found() {
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
fn hosts_without_a_token_and_tokens_that_can_be_guessed_are_refused() {
    let two = launch(2, 1, Launcher::OpenMpi);
    let master = "MASTER_ADDR=a MASTER_PORT=4000";
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("token");
    fs::write(&file, "  secret of the run\n").expect("written");
    let file = file.display();
    for (token, expected) in [
        ("", Err("share no token; set ONEGRAPH_TOKEN")),
        ("ONEGRAPH_TOKEN=x", Err("fewer than 8 characters")),
        ("ONEGRAPH_TOKEN_FILE=none", Err("none: cannot be read")),
        ("ONEGRAPH_TOKEN=0123456789", Ok("0123456789")),
        ("OMPI_MCA_orte_precondition_transports=00-11-22-33", Ok("00-11-22-33")),
        (&format!("ONEGRAPH_TOKEN_FILE={file}"), Ok("secret of the run")),
    ] {
        let found = Rendezvous::find(&two, &options(&format!("{master} {token}")));
        let found = found.map(|found| found.token.unwrap_or_default());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected),
            (Err(error), Err(said)) => assert!(error.to_string().contains(said), "{error}"),
            (found, expected) => panic!("{token}: {found:?}, not {expected:?}"),
        }
    }
}

#[test]
fn the_file_is_private_replaces_a_stale_one_and_goes_when_all_have_met() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = launch(2, 2, Launcher::Torchrun);
    let variables = format!("XDG_RUNTIME_DIR={} ONEGRAPH_JOB=x", folder.path().display());
    let find = || Rendezvous::find(&one, &options(&variables)).expect("nothing need be set");
    let error = find().look().expect_err("rank 0 is not there");
    assert!(error.contains("rank 0 has not written"), "{error}");
    let path = find().file.expect("a file");
    fs::write(&path, "127.0.0.1:9\nstale\n").expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
    let error = find().look().expect_err("others may read it");
    assert!(error.contains("is not a private file"), "{error}");
    let served = find().serve().expect("it listens");
    let mode = fs::metadata(&path).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (address, token) = find().look().expect("readable");
    assert_eq!(address, served.listener.local_addr().expect("an address").to_string());
    assert_eq!((&token, token.len()), (&served.token, 32));
    drop(served);
    assert!(!path.exists());
    let other = format!("XDG_RUNTIME_DIR={} ONEGRAPH_JOB=y", folder.path().display());
    let other = Rendezvous::find(&one, &options(&other)).expect("found").file;
    assert_ne!(other, Some(path), "another run has another file");
}

#[test]
fn a_port_that_is_taken_is_a_sentence() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let variables = format!("MASTER_ADDR=127.0.0.1 MASTER_PORT={port} ONEGRAPH_TOKEN=01234567");
    let one = launch(2, 2, Launcher::OpenMpi);
    let found = Rendezvous::find(&one, &options(&variables)).expect("all is given");
    let error = found.serve().expect_err("it is taken").to_string();
    let said = format!("rank 0 cannot listen on port {port}: another process does");
    assert!(error.starts_with(&said), "{error}");
}

#[test]
fn loopback_stays_loopback_and_a_name_means_all_interfaces() {
    let one = launch(2, 2, Launcher::OpenMpi);
    let serve = |address: &str| {
        let token = Some("0123456789".to_owned());
        let options =
            JoinOptions { address: Some(address.into()), token, ..options("XDG_RUNTIME_DIR=") };
        let found = Rendezvous::find(&one, &options).expect("all is given");
        found.serve().map(|served| served.listener.local_addr().expect("an address").ip())
    };
    for loopback in ["localhost:0", "127.0.0.1:0"] {
        assert!(serve(loopback).expect("it listens").is_loopback());
    }
    for name in ["some-host:0", "10.1.2.3:0", "[fd00::1]:0"] {
        assert!(serve(name).expect("it listens").is_unspecified());
    }
    for wrong in ["some-host", "some-host:x", "a:99999"] {
        let error = serve(wrong).expect_err(wrong).to_string();
        assert_eq!(error, format!("`{wrong}` is no address of rank 0; give HOST:PORT"));
    }
}

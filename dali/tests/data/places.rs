//! Only one process creates a folder at a time, files of killed processes are removed, and foreign
//! files are kept.

use std::fs;

use dali::{DaliError, Lock};

use crate::fixture::{Fixture, assert_fails};

fn run_lock() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.lock");
    (dir, path)
}

fn lock_file(fixture: &Fixture) -> std::path::PathBuf {
    fixture.dir.path().join(".store.onegraph-lock")
}

#[test]
fn lock_is_exclusive_and_names_its_owner() {
    let (_dir, path) = run_lock();
    assert_eq!(Lock::owner(&path).unwrap(), None);
    let lock = Lock::take(&path).unwrap();
    let Err(DaliError::Locked { owner, .. }) = Lock::take(&path) else { panic!("taken twice") };
    assert_eq!(Lock::owner(&path).unwrap().as_ref(), Some(&owner));
    let (pid, host) = (std::process::id(), &owner.host);
    let process = format!("process {pid} on host {host} since 20");
    assert_fails(Lock::take(&path), &["run.lock", &process, "wait until it has ended, or end it"]);
    lock.check().unwrap();
    drop(lock);
    assert!(!path.exists());
    let lock = Lock::take(&path).unwrap();
    assert_eq!(lock.replaced(), None);
}

#[test]
fn waiting_process_acquires_released_lock() {
    let (_dir, path) = run_lock();
    let held = std::sync::Mutex::new(Some(Lock::take(&path).unwrap()));
    let mut pauses = 0;
    let lock = Lock::wait(&path, &mut |owner| {
        assert_eq!(owner.pid, std::process::id());
        pauses += 1;
        if pauses == 2 {
            held.lock().unwrap().take();
        }
    });
    lock.unwrap().check().unwrap();
    assert_eq!(pauses, 2);
}

#[test]
fn lock_from_another_host_stays_valid_until_deleted() {
    let (_dir, path) = run_lock();
    let far = r#"{"host":"far","kernel":"of another machine","pid":17,"since":1700000000}"#;
    fs::write(&path, far).unwrap();
    let mend = format!("if it is gone, remove {}", path.display());
    let process = "process 17 on host far since 2023-11-14T22:13:20Z";
    assert_fails(Lock::take(&path), &[process, &mend]);
    assert_eq!(fs::read_to_string(&path).unwrap(), far);
    assert_eq!(Lock::owner(&path).unwrap().map(|owner| owner.host), Some("far".into()));
    fs::remove_file(&path).unwrap();
    let lock = Lock::take(&path).unwrap();

    // Replaces the lock file, as a process on a different host would.
    fs::remove_file(&path).unwrap();
    fs::write(&path, far).unwrap();
    assert_fails(lock.check(), &["process 17", "host far"]);
    drop(lock);
    assert!(path.exists(), "it is the other's");
}

#[test]
fn stale_local_lock_is_taken_over_after_restart() {
    let (_dir, path) = run_lock();
    let lock = Lock::take(&path).unwrap();
    let mut owner: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    drop(lock);
    owner["pid"] = 17.into();
    for kernel in [owner["kernel"].clone(), "of an earlier start".into()] {
        owner["kernel"] = kernel;
        fs::write(&path, owner.to_string()).unwrap();
        assert_eq!(Lock::owner(&path).unwrap(), None);
        let lock = Lock::take(&path).unwrap();
        assert_eq!(lock.replaced().map(|owner| owner.pid), Some(17));
        lock.check().unwrap();
    }
}

#[test]
fn leftovers_of_killed_prep_are_removed_or_restored() {
    let fixture = Fixture::prepared();
    let beside = |name: &str| fixture.dir.path().join(name);
    // Folders left by processes that were killed while writing, or between the two renames that
    // replace a store.
    fs::create_dir(beside(".store.onegraph-tmp-AbCdEf012345")).unwrap();
    fs::write(beside(".store.onegraph-tmp-AbCdEf012345").join("images.bin"), "half").unwrap();
    fs::rename(fixture.store_path(), beside(".store.onegraph-old-AbCdEf012345")).unwrap();
    // Folders without a temporary name of this store.
    fs::create_dir(beside("store.old-202611221200")).unwrap();
    fs::create_dir(beside(".store2.onegraph-tmp-AbCdEf012345")).unwrap();
    fs::write(beside("store.lock"), "of a package manager").unwrap();
    // A lock whose process has ended.
    fs::write(lock_file(&fixture), "").unwrap();
    assert_fails(fixture.run_with(|_| ()), &["exists already, made from the same sources"]);
    assert_eq!(fixture.store().len(), 1);
    let mut names: Vec<_> = fs::read_dir(fixture.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("store"))
        .collect();
    names.sort();
    let strangers = [".store2.onegraph-tmp-AbCdEf012345", "store", "store.lock"];
    assert_eq!(names, [&strangers[..], &["store.old-202611221200"]].concat());
}

#[test]
fn foreign_file_at_lock_path_is_kept() {
    let (dir, path) = run_lock();
    let notes = dir.path().join("notes");
    for text in ["mine", "{}"] {
        fs::write(&path, text).unwrap();
        assert_fails(Lock::take(&path), &["run.lock", "move it away"]);
        assert_eq!(fs::read(&path).unwrap(), text.as_bytes());
    }
    fs::remove_file(&path).unwrap();
    fs::write(&notes, "").unwrap();
    std::os::unix::fs::symlink(&notes, &path).unwrap();
    assert_fails(Lock::take(&path), &["run.lock"]);
    assert_eq!(fs::read(&notes).unwrap(), b"", "the link is not followed");
}

#[test]
fn deleted_lock_is_acquired_again() {
    let (_dir, path) = run_lock();
    let lock = Lock::take(&path).unwrap();
    fs::remove_file(&path).unwrap();
    lock.check().unwrap();
    assert_fails(Lock::take(&path), &["run.lock", "process"]);
    drop(lock);
    assert!(!path.exists());
}

#[test]
fn foreign_file_in_store_is_reported_and_kept() {
    let fixture = Fixture::prepared();
    let notes = fixture.stored("notes.txt");
    fs::write(&notes, "dear").unwrap();
    let again = || fixture.prep_with(|options| options.overwrite = true);
    assert_fails(again(), &["store", "notes.txt", "not overwritten"]);
    assert_eq!(fs::read(&notes).unwrap(), b"dear");
    fs::remove_file(&notes).unwrap();

    // A folder of a different program with the same file names.
    let header = fixture.stored("header.json");
    fs::remove_file(&header).unwrap();
    fs::write(&header, r#"{"title": "thesis"}"#).unwrap();
    assert_fails(again(), &["not overwritten"]);
    assert!(header.exists());
}

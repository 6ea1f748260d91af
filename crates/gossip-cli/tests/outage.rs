//! Workers whose store is unusable for some time: a full disk, a file that was moved, an etcd
//! without space, an etcd that is stopped, killed or cut off. They wait without starting an item,
//! and then finish.

#![expect(clippy::unwrap_used, reason = "a file of tests")]

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use gossip::etcd::{
    DEFAULT_KEEP_ALIVE_INTERVAL, DEFAULT_KEEP_ALIVE_TIMEOUT, DEFAULT_REQUEST_TIMEOUT,
};
use gossip_testkit::test_support::{Direction, EtcdServer, Proxy, ServerOptions};
use rustix::process::Signal;

use support::{Scratch, finish, signal, wait_until};

/// Long enough for a connection to be closed with requests on it, and for leases to expire; much
/// shorter than the time after which a worker stops.
const OUTAGE: Duration = DEFAULT_KEEP_ALIVE_INTERVAL
    .saturating_add(DEFAULT_KEEP_ALIVE_TIMEOUT)
    .saturating_add(DEFAULT_REQUEST_TIMEOUT);

/// Number of keys; each takes some time, so that the outage happens in the middle of the run, also
/// if a busy machine takes seconds to fill a store.
const KEYS: usize = 600;

/// Keys that are done before the outage.
const KEYS_BEFORE: usize = 10;

/// Appends its number to a file of the test.
const NOTE: [&str; 5] = ["sh", "-c", "sleep 0.05; echo \"$1\" >> seen", "sh", "{}"];

/// Time in which a worker would process many keys if it did not wait.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Upper bound of a drain without a store, on a busy machine: a few requests that time out; far
/// below the patience.
const DRAIN_MAX: Duration = Duration::from_secs(60);

const UNUSABLE: &str = "the store is unusable";
const USABLE: &str = "the store is usable again";

/// Quota of an etcd that is filled in a moment and has room for a run.
const QUOTA_BYTES: usize = 4 << 20;

/// Value of one write that fills an etcd. An argument of a program has less than 128 KiB.
const FILLER_BYTES: usize = 120 << 10;

fn url(etcd: &EtcdServer) -> String {
    format!("etcd://127.0.0.1:{}/outage", etcd.client_port())
}

/// Two worker processes of one run that report to files.
struct Pair {
    scratch: Scratch,
    store: String,
    run: String,
    workers: Vec<Child>,
}

impl Pair {
    /// Starts two workers and waits until some keys are done.
    fn start(store: String, options: &[&str]) -> Self {
        let scratch = Scratch::new();
        let keys = format!("range:0..{KEYS}");
        let create = ["--store", &store, "run", "create", &keys, "--lease", "60s", "--shards", "4"];
        let made = scratch.run(&[&create[..], &["--"], &NOTE].concat());
        assert_eq!(made.code, Some(0), "{}", made.stderr);
        let run = made.stdout.trim().to_owned();
        let workers = (0..2).map(|number| {
            let args = ["--store", &store, "worker", &run, "--jobs", "2", "--store-patience"];
            let options = if options.is_empty() { &["10m"] } else { options };
            let errors = fs::File::create(scratch.path().join(format!("errors{number}"))).unwrap();
            let mut command = scratch.gossip(&[&args[..], options].concat());
            command.stderr(errors).spawn().unwrap()
        });
        let pair = Self { workers: workers.collect(), scratch, store, run };
        wait_until("work", || pair.seen().len() >= KEYS_BEFORE);
        pair
    }

    fn seen(&self) -> Vec<String> {
        self.scratch.lines("seen")
    }

    /// Returns what a worker has reported.
    fn errors(&self, number: usize) -> String {
        fs::read_to_string(self.scratch.path().join(format!("errors{number}"))).unwrap()
    }

    /// Waits until both workers have reported the outage, and checks that they start nothing.
    fn wait_for_standstill(&self) {
        wait_until("a report", || (0..2).all(|number| self.errors(number).contains(UNUSABLE)));
        makes_no_progress(&self.scratch);
    }

    /// Waits for the workers. Checks that both report one outage and its end, that every key was
    /// processed once, and that the run covers its source.
    fn finish_and_verify(mut self) {
        for worker in std::mem::take(&mut self.workers) {
            assert_eq!(finish(worker).code, Some(0), "{}{}", self.errors(0), self.errors(1));
        }
        for number in 0..2 {
            let errors = self.errors(number);
            assert_eq!(errors.matches(UNUSABLE).count(), 1, "{errors}");
            assert_eq!(errors.matches(USABLE).count(), 1, "{errors}");
        }
        let seen = self.seen();
        let distinct: BTreeSet<&String> = seen.iter().collect();
        // The leases are longer than the outage, so not even unsaved items are repeated.
        assert_eq!((distinct.len(), seen.len()), (KEYS, KEYS));
        let verify = ["--store", &self.store, "run", "verify", &self.run, "--source"];
        let verified = self.scratch.run(&verify);
        assert_eq!(verified.code, Some(0), "{}", verified.stderr);
    }
}

/// Checks that no item is started for some time. In-flight ones were started before the call.
fn makes_no_progress(scratch: &Scratch) {
    wait_until("the end of in-flight items", || {
        let seen = scratch.lines("seen").len();
        thread::sleep(STANDSTILL);
        scratch.lines("seen").len() == seen
    });
    assert!(scratch.lines("seen").len() < KEYS, "the workers did not wait");
}

/// A network that drops all packets does not stop the worker: it waits, then finishes the run.
#[test]
fn worker_waits_out_an_outage_and_finishes() {
    let scratch = Scratch::new();
    let server = EtcdServer::single();
    let proxy = Proxy::before(server.client_port());
    let store = format!("etcd://127.0.0.1:{}/outage", proxy.port());
    let keys = format!("range:0..{KEYS}");
    let args = [&["--store", &store, "exec", &keys, "--jobs", "2", "--"], &NOTE[..]].concat();
    let worker = scratch.gossip(&args).spawn().unwrap();
    wait_until("work", || scratch.lines("seen").len() >= KEYS_BEFORE);
    proxy.hold(Direction::ToTarget);
    proxy.hold(Direction::FromTarget);
    thread::sleep(OUTAGE);
    // The held requests are lost with their connections.
    proxy.reset();
    proxy.open();
    let ran = finish(worker);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // Items that were not acknowledged are processed again.
    let seen: BTreeSet<String> = scratch.lines("seen").into_iter().collect();
    assert_eq!(seen.len(), KEYS);
}

#[test]
fn workers_wait_for_an_etcd_that_is_killed_and_restarted() {
    let mut etcd = EtcdServer::single();
    let pair = Pair::start(url(&etcd), &[]);
    etcd.kill();
    pair.wait_for_standstill();
    etcd.restart();
    pair.finish_and_verify();
}

#[test]
fn workers_wait_for_an_etcd_that_is_stopped_and_continued() {
    let etcd = EtcdServer::single();
    let pair = Pair::start(url(&etcd), &[]);
    etcd.pause();
    pair.wait_for_standstill();
    etcd.resume();
    pair.finish_and_verify();
}

/// The quota is used up by another user of the cluster, and the operator makes room as the message
/// of the workers says.
#[test]
fn workers_wait_for_an_etcd_without_space() {
    let quota = format!("--quota-backend-bytes={QUOTA_BYTES}");
    let etcd = EtcdServer::with_options(&ServerOptions::with_flags(&[&quota]));
    let pair = Pair::start(url(&etcd), &[]);
    let filler = "x".repeat(FILLER_BYTES);
    let most = QUOTA_BYTES / FILLER_BYTES * 2;
    // A server that is slow for a moment fails the command as well, and is not full.
    let is_refused = |_| {
        let output = run_etcdctl(&etcd, &["put", "/filler", &filler]);
        String::from_utf8_lossy(&output.stderr).contains("space exceeded")
    };
    let is_full = (0..most).any(is_refused);
    assert!(is_full, "{most} writes fit");
    pair.wait_for_standstill();
    for advised in ["etcdctl compact", "etcdctl defrag", "etcdctl alarm disarm"] {
        assert!(pair.errors(0).contains(advised), "{}", pair.errors(0));
    }
    let status = etcdctl(&etcd, &["endpoint", "status", "--write-out=json"]).unwrap();
    let after = status.split("\"revision\":").nth(1).unwrap();
    let revision: String = after.chars().take_while(char::is_ascii_digit).collect();
    for command in [&["compact", &revision][..], &["defrag"], &["alarm", "disarm"]] {
        etcdctl(&etcd, command).unwrap_or_else(|| panic!("etcdctl {command:?}"));
    }
    pair.finish_and_verify();
}

/// Runs a command of the operator. Returns its output if it succeeds.
fn etcdctl(etcd: &EtcdServer, args: &[&str]) -> Option<String> {
    let output = run_etcdctl(etcd, args);
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}

fn run_etcdctl(etcd: &EtcdServer, args: &[&str]) -> Output {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint()]).args(args);
    command.output().unwrap()
}

/// After its patience a worker stops with advice; saved progress is resumed.
#[test]
fn workers_stop_when_their_patience_is_used_up() {
    let mut etcd = EtcdServer::single();
    let mut pair = Pair::start(url(&etcd), &["3s"]);
    etcd.kill();
    for worker in std::mem::take(&mut pair.workers) {
        assert_eq!(finish(worker).code, Some(5));
    }
    for number in 0..2 {
        let errors = pair.errors(number);
        assert!(errors.contains("the store was unusable for"), "{errors}");
        assert!(errors.contains("repeat the command to resume"), "{errors}");
    }
}

/// The first signal ends a worker that waits, although its store is still away.
#[test]
fn signal_ends_workers_that_wait_for_the_store() {
    let mut etcd = EtcdServer::single();
    let mut pair = Pair::start(url(&etcd), &[]);
    etcd.kill();
    pair.wait_for_standstill();
    pair.workers.iter().for_each(|worker| signal(worker, Signal::TERM));
    let asked = Instant::now();
    for worker in std::mem::take(&mut pair.workers) {
        assert_eq!(finish(worker).code, Some(130), "{}{}", pair.errors(0), pair.errors(1));
    }
    assert!(asked.elapsed() < DRAIN_MAX, "after {:?}", asked.elapsed());
    assert!(pair.errors(0).contains("stopped while the store is unusable"), "{}", pair.errors(0));
}

/// A store of SQLite in the directory of a pair, by the name of its file.
const FILE: &str = "store.db";

/// The database, its log and the index of its log.
const FILES: [&str; 3] = [FILE, "store.db-wal", "store.db-shm"];

#[cfg(unix)]
#[test]
fn workers_wait_for_a_file_that_is_moved_away_and_back() {
    let pair = Pair::start(format!("sqlite:{FILE}"), &[]);
    let path = |name: &str| pair.scratch.path().join(name);
    let away = |name: &str| path(&format!("{name}.away"));
    FILES.iter().for_each(|name| fs::rename(path(name), away(name)).unwrap());
    pair.wait_for_standstill();
    assert!(FILES.iter().all(|name| !path(name).exists()), "a worker created a file");
    assert!(pair.errors(0).contains("move the original back"), "{}", pair.errors(0));
    FILES.iter().for_each(|name| fs::rename(away(name), path(name)).unwrap());
    pair.finish_and_verify();
}

#[cfg(unix)]
#[test]
fn workers_stop_if_a_deleted_file_does_not_come_back() {
    let mut pair = Pair::start(format!("sqlite:{FILE}"), &["3s"]);
    let path = |name: &str| pair.scratch.path().join(name);
    FILES.iter().for_each(|name| fs::remove_file(path(name)).unwrap());
    for worker in std::mem::take(&mut pair.workers) {
        assert_eq!(finish(worker).code, Some(5), "{}{}", pair.errors(0), pair.errors(1));
    }
    for number in 0..2 {
        let errors = pair.errors(number);
        assert!(errors.contains("the store was unusable for"), "{errors}");
        assert!(errors.contains("was moved or deleted"), "{errors}");
    }
    assert!(pair.seen().len() < KEYS, "the workers did not wait");
    assert!(FILES.iter().all(|name| !path(name).exists()), "a worker created a file");
}

/// A copy may lack progress that was saved after it was made, so no worker continues in one.
#[cfg(unix)]
#[test]
fn workers_stop_at_once_if_a_copy_takes_the_place_of_their_file() {
    let mut pair = Pair::start(format!("sqlite:{FILE}"), &[]);
    let path = |name: &str| pair.scratch.path().join(name);
    fs::copy(path(FILE), path("copy")).unwrap();
    fs::rename(path("copy"), path(FILE)).unwrap();
    for worker in std::mem::take(&mut pair.workers) {
        assert_eq!(finish(worker).code, Some(5));
    }
    for number in 0..2 {
        let errors = pair.errors(number);
        assert!(errors.contains("another file has the name of the database"), "{errors}");
    }
}

/// A store that cannot be opened is an error at once: nothing was started that could wait.
#[test]
fn unreachable_store_at_the_start_is_an_error_at_once() {
    let mut etcd = EtcdServer::single();
    etcd.kill();
    let (scratch, store) = (Scratch::new(), url(&etcd));
    let ran = scratch.run(&["--store", &store, "exec", "range:0..3", "--", "true"]);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(!ran.stderr.contains(UNUSABLE), "{}", ran.stderr);
}

/// Set on machines that gate changes.
#[cfg(target_os = "linux")]
const CHECKS: &str = "CI";

#[cfg(target_os = "linux")]
mod full_disk {
    use super::*;

    /// Waits for a line of `seen`, fills the disk, waits for the file `room`, empties the disk.
    const SCRIPT: &str = r#"
mount -t tmpfs -o size=8m tmpfs disk || exit 77
run=$("$GOSSIP" run create range:0..$KEYS --lease 60s --shards 4 -- \
    sh -c 'sleep 0.05; echo "$1" >> seen' sh {}) || exit 1
"$GOSSIP" worker "$run" --jobs 2 2> errors0 & one=$!
"$GOSSIP" worker "$run" --jobs 2 2> errors1 & two=$!
until [ -s seen ]; do sleep 0.05; done
dd if=/dev/zero of=disk/filler bs=64k 2> /dev/null
cat /dev/zero >> disk/filler 2> /dev/null
: > full
until [ -e room ]; do
    # A test that failed has removed its directory.
    [ -e full ] || { kill $one $two; exit 1; }
    sleep 0.05
done
rm disk/filler
wait $one; echo $? > code0
wait $two; echo $? > code1
exec "$GOSSIP" run verify "$run" --source
"#;

    /// Starts the script in `scratch`; `None` if mounts are not permitted.
    pub(super) fn start(scratch: &Scratch) -> Option<Child> {
        let disk = scratch.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let namespace = |script: &str| {
            let mut command = scratch.command("unshare");
            if !rustix::process::geteuid().is_root() {
                command.arg("--map-root-user");
            }
            command.args(["--mount", "sh", "-c", script]);
            command.env("GOSSIP", env!("CARGO_BIN_EXE_gossip")).env("KEYS", KEYS.to_string());
            command.env("GOSSIP_STORE", format!("sqlite:{}/store.db", disk.display()));
            command
        };
        let probe = "mount -t tmpfs -o size=1m tmpfs disk";
        if !namespace(probe).status().unwrap().success() {
            assert!(std::env::var_os(CHECKS).is_none(), "mounts are not permitted here");
            return None;
        }
        Some(namespace(SCRIPT).spawn().unwrap())
    }
}

/// SQLite on a disk that another program fills. Some containers do not permit mounts; there the
/// test prints a note, and only the tests in virtual time cover it.
#[cfg(target_os = "linux")]
#[test]
fn workers_wait_for_room_on_a_full_disk() {
    let scratch = Scratch::new();
    let Some(script) = full_disk::start(&scratch) else {
        // Not `eprintln`, because the output of a passing test is captured.
        let why = b"NOT RUN: full disk: mounts are not permitted here\n";
        return std::io::stderr().write_all(why).unwrap();
    };
    let read = |name: &str| fs::read_to_string(scratch.path().join(name)).unwrap_or_default();
    wait_until("a full disk", || scratch.path().join("full").exists());
    wait_until("a report", || ["errors0", "errors1"].iter().all(|it| read(it).contains(UNUSABLE)));
    makes_no_progress(&scratch);
    fs::write(scratch.path().join("room"), "").unwrap();
    let verified = finish(script);
    assert_eq!(verified.code, Some(0), "{}", verified.stderr);
    for number in 0..2 {
        let errors = read(&format!("errors{number}"));
        assert_eq!(read(&format!("code{number}")), "0\n", "{errors}");
        assert_eq!(errors.matches(UNUSABLE).count(), 1, "{errors}");
        assert_eq!(errors.matches(USABLE).count(), 1, "{errors}");
        assert!(errors.contains("make room on the disk"), "{errors}");
    }
    let seen = scratch.lines("seen");
    assert_eq!((seen.iter().collect::<BTreeSet<_>>().len(), seen.len()), (KEYS, KEYS));
}

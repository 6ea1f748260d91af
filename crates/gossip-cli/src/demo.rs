//! `demo`: a run with three worker processes, one of which is killed, and the proof that no key was
//! missed.
//!
//! Everything lies in a private directory that is removed at the end, also after Ctrl-C. Workers
//! end with the process that started them, because their standard input ends with it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gossip::coordination::{RunManagement as _, ShardAction, ShardFilter, ShardSummary};
use gossip::identity::{FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId};
use gossip::runtime::{Clock as _, SystemClock, fresh_op_id};
use gossip::store::{Backend, Coordinator, StoreUrl};
use gossip::{DEFAULT_TENANT, Scan, ScanError, Session, tenant_id};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::args::DemoArgs;
use crate::certificate::{self, FinishedRun};
use crate::console::Console;
use crate::failure::{Code, Failure};
use crate::live::{Board, Entry};
use crate::overview::Overview;
use crate::screen::text::{counted, number};
use crate::{opening, runs, watch};

/// Keys of the run.
const KEYS: u64 = 20_000;

/// Worker processes, and jobs of each.
const WORKERS: usize = 3;
const JOBS: usize = 2;

/// Shards at the start: more than jobs, so that some wait, and few enough to be seen on the map.
const SHARDS: usize = 9;

/// How long an item takes. Sleeping and not computing, so that the demo takes about as long on any
/// machine: a bit more than ten seconds.
const ITEM: Duration = Duration::from_millis(3);

/// Short, so that the shards of the killed worker are free again soon.
const LEASE: Duration = Duration::from_secs(4);

/// When a shard is split and a worker is killed, in done keys.
const SPLIT_AT: u64 = KEYS / 8;
const KILL_AT: u64 = KEYS / 4;

/// How often the run is read: often, because the run is small.
const READ_EVERY: Duration = Duration::from_millis(250);

/// A demo that has not ended by then has failed.
const PATIENCE: Duration = Duration::from_mins(2);

/// Name of the store in the directory of the demo.
const STORE: &str = "store.db";

/// Runs the demo, or one worker of it.
pub(crate) fn run(args: &DemoArgs, console: &Console) -> Result<Code, Failure> {
    match &args.worker {
        Some(directory) => work(directory),
        None => Demo::run(console),
    }
}

/// Processes keys until the run ends, and notes each.
fn work(directory: &Path) -> Result<Code, Failure> {
    // Its own thread, so that the end of the demo is noticed during the work.
    thread::spawn(|| {
        // The demo has ended when its end of the pipe is closed.
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(i32::from(Code::Interrupted as u8));
    });
    let noted = directory.join(format!("keys.{}", std::process::id()));
    let noted =
        File::options().append(true).create(true).open(noted).map_err(|error| bug(&error))?;
    let outcome = scan(directory).each(|item| {
        thread::sleep(ITEM);
        let key = item.number().ok_or_else(|| io::Error::other("a range has numbers"))?;
        // One write, so that a kill leaves no half of a number.
        (&noted).write_all(&key.to_le_bytes())?;
        Ok(())
    });
    outcome.map(|_| Code::Complete).map_err(|error| opening::failure(&error))
}

/// Returns the scan of the demo: the same in every process, so that they work on one run.
fn scan(directory: &Path) -> Scan<'static> {
    let shards = NonZeroUsize::new(SHARDS).expect("a constant above zero");
    let store = directory.join(STORE).display().to_string();
    Scan::of(format!("range:0..{KEYS}"))
        .store(format!("sqlite:{store}"))
        .name("demo")
        .lease(LEASE)
        .threads(JOBS)
        .shards(shards)
        .checkpoint(KEYS, Duration::from_millis(500))
}

fn bug(error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Internal, "the demo failed").why(error)
}

/// A running demo.
struct Demo<'a> {
    console: &'a Console,
    directory: &'a Directory,
    coordinator: Coordinator,
    tenant: TenantId,
    run: RunId,
    workers: Workers,
    started: Instant,
    /// The shard that was to be split, and the number of shards before.
    split: Option<(usize, usize)>,
    has_split: bool,
    killed: Option<Killed>,
}

/// The worker that was killed.
struct Killed {
    /// The shards it held then.
    shards: Vec<Held>,
    is_taken_over: bool,
}

/// A leased shard.
struct Held {
    /// Its number in the messages.
    number: usize,
    id: ShardId,
    fence: FenceEpoch,
}

impl Demo<'_> {
    fn run(console: &Console) -> Result<Code, Failure> {
        let stop = Arc::new(AtomicBool::new(false));
        // Flags and no handler that ends the process: the directory has to be removed first.
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop)).map_err(|error| bug(&error))?;
        }
        let directory = Directory::new().map_err(|error| bug(&error))?;
        let url = StoreUrl::sqlite(directory.0.join(STORE));
        let backend = Backend::open(&url).map_err(|error| bug(&error))?;
        let tenant = tenant_id(DEFAULT_TENANT).map_err(|error| bug(&error))?;
        // The same scan as in the workers, so it opens the run that they join.
        let prepared = scan(&directory.0).prepare().map_err(|error| opening::failure(&error))?;
        let session = prepared.open(&backend, tenant, &());
        let session = session.map_err(|error: ScanError| opening::failure(&error))?;
        console.note(&format!(
            "{}, three worker processes, one store: {}",
            counted(KEYS, "key"),
            directory.0.display()
        ));
        let workers = Workers::start(&directory.0).map_err(|error| bug(&error))?;
        let mut demo = Demo {
            console,
            directory: &directory,
            coordinator: backend.coordinator(),
            tenant,
            run: session.run(),
            workers,
            started: Instant::now(),
            split: None,
            has_split: false,
            killed: None,
        };
        let pids: Vec<String> = demo.workers.pids().iter().map(u32::to_string).collect();
        demo.say(&format!("workers {} are at work", pids.join(", ")));
        let board = Board::default();
        let ended = board.show(console, || demo.watch(&backend, &session, &board, &stop));
        if !ended? {
            console.note("stopped; nothing is left behind");
            return Ok(Code::Interrupted);
        }
        demo.prove()
    }

    /// Prints what happens, with the time.
    fn say(&self, text: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        self.console.note(&format!("{seconds:>5.1} s  {text}"));
    }

    /// Shows the run until it ends. Returns whether it has, and was not stopped.
    fn watch(
        &mut self,
        backend: &Backend,
        session: &Session<'_>,
        board: &Board,
        stop: &AtomicBool,
    ) -> Result<bool, Failure> {
        let density = watch::density(session.source(), session.connector());
        let mut overview = Overview::new(backend, self.tenant, self.run, density, None);
        while !stop.load(Ordering::Relaxed) {
            if self.started.elapsed() > PATIENCE {
                return Err(Failure::new(Code::Internal, "the demo did not end in time"));
            }
            let (snapshot, _) = overview.read();
            let snapshot = Arc::new(snapshot.map_err(|error| runs::not_found(self.run, &error))?);
            let (title, latest) = (None, Some(Arc::clone(&snapshot)));
            board.set(vec![Entry { title, latest, trouble: None, since: self.started }]);
            let rows =
                runs::rows(&mut self.coordinator, self.tenant, self.run, ShardFilter::all())?;
            self.direct(snapshot.progress.keys, &rows)?;
            if snapshot.status.is_terminal() {
                return Ok(true);
            }
            thread::sleep(READ_EVERY);
        }
        Ok(false)
    }

    /// Splits a shard and kills a worker, each when it is time, and reports what follows.
    fn direct(&mut self, keys: u64, rows: &[ShardSummary]) -> Result<(), Failure> {
        if self.split.is_none() && keys >= SPLIT_AT {
            self.split_one(rows);
        }
        // A request takes effect at the next renewal of the owner, so its effect is watched for.
        if let Some((shard, before)) = self.split
            && !self.has_split
            && rows.len() > before
        {
            self.has_split = true;
            self.say(&format!("shard {shard} was split: two workers can share the rest of it"));
        }
        // After the split, so that the two events are seen one after the other.
        if self.killed.is_none() && self.has_split && keys >= KILL_AT {
            self.kill_one(rows)?;
        }
        self.report_takeover(rows);
        Ok(())
    }

    /// Requests the split of the shard with the longest rest.
    fn split_one(&mut self, rows: &[ShardSummary]) {
        let leased = || rows.iter().enumerate().filter(|(_, row)| row.leased);
        let rest = |row: &ShardSummary| {
            number_of(&row.end) - number_of(row.last_key.as_deref().unwrap_or(&row.start))
        };
        let Some((index, row)) = leased().max_by_key(|(_, row)| rest(row)) else { return };
        let now = SystemClock::new().now();
        let until = now.saturating_add(REQUEST_TICKS);
        let key = ShardKey::new(self.run, row.shard);
        let action = ShardAction::Split(None);
        // Refused if the shard has just ended; then the next one is tried.
        let requested =
            self.coordinator.request_action(now, self.tenant, key, &action, until, fresh_op_id());
        if requested.is_ok() {
            self.split = Some((index + 1, rows.len()));
        }
    }

    /// Kills the worker that holds the most shards.
    fn kill_one(&mut self, rows: &[ShardSummary]) -> Result<(), Failure> {
        let mut held: BTreeMap<u32, Vec<Held>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let Some(owner) = row.owner else { continue };
            let Some(pid) = pid_of(&mut self.coordinator, self.tenant, owner) else { continue };
            let held_one = Held { number: index + 1, id: row.shard, fence: row.fence_epoch };
            held.entry(pid).or_default().push(held_one);
        }
        let most = held.into_iter().max_by_key(|(_, shards)| shards.len());
        let Some((pid, shards)) = most else { return Ok(()) };
        if !self.workers.kill(pid).map_err(|error| bug(&error))? {
            return Ok(());
        }
        let count = counted(shards.len() as u64, "shard");
        self.say(&format!(
            "kill -9 {pid}: it holds {count}, which stay locked until its leases end"
        ));
        self.killed = Some(Killed { shards, is_taken_over: false });
        Ok(())
    }

    /// Reports once that another worker has a shard of the killed one.
    fn report_takeover(&mut self, rows: &[ShardSummary]) {
        let Some(killed) = self.killed.as_mut().filter(|killed| !killed.is_taken_over) else {
            return;
        };
        let moved = killed.shards.iter().find_map(|held| {
            let row = rows.iter().find(|row| row.shard == held.id)?;
            // A higher fence is a new grant; the owner alone stays that of the killed worker for a
            // while.
            Some((held.number, row.owner.filter(|_| row.fence_epoch > held.fence)?))
        });
        let Some((shard, owner)) = moved else { return };
        killed.is_taken_over = true;
        let pid = pid_of(&mut self.coordinator, self.tenant, owner);
        let by = pid.map_or_else(|| "another worker".to_owned(), |pid| format!("worker {pid}"));
        self.say(&format!("{by} continues shard {shard} from its last checkpoint"));
    }

    /// Prints the proof: what the workers noted, and the certificate compared with the source.
    fn prove(mut self) -> Result<Code, Failure> {
        let lasted = self.started.elapsed();
        // All have ended or do so now, so that their notes are complete.
        self.workers.wait().map_err(|error| bug(&error))?;
        let noted = noted(&self.directory.0).map_err(|error| bug(&error))?;
        let processed: u64 = noted.values().sum();
        // By the notes of the workers: they know nothing of the store that is to be proven right.
        let (distinct, missing) =
            (noted.len() as u64, (0..KEYS).filter(|key| !noted.contains_key(key)));
        let missing = missing.count();
        let finished = FinishedRun {
            coordinator: &mut self.coordinator,
            tenant: self.tenant,
            run: self.run,
            console: self.console,
            states_command: true,
        };
        let found = certificate::prove(finished)?;
        let leaves = counted(found.done + found.parked, "leaf").replace("leafs", "leaves");
        let seconds = lasted.as_secs_f64();
        let rows = [
            format!("complete: {} of {} keys in {seconds:.1} s", number(distinct), number(KEYS)),
            format!("  missing   {missing}"),
            format!(
                "  repeated  {}, those of the killed worker since its last checkpoint",
                number(processed - distinct)
            ),
            format!(
                "  proof     {leaves} without gap or overlap; every key compared with the source"
            ),
        ];
        if missing > 0 || !found.is_complete() || distinct != KEYS {
            return Err(Failure::new(Code::Internal, "the demo failed: keys are missing"));
        }
        for row in rows {
            self.console.note(&row);
        }
        self.console.note("Nothing is left behind. Your turn: gossip exec DIRECTORY -- COMMAND {}");
        Ok(Code::Complete)
    }
}

/// A request to a worker is void after this time, in ticks.
const REQUEST_TICKS: u64 = 30_000;

/// Returns the number in the key of a row.
fn number_of(key: &[u8]) -> u64 {
    gossip::sources::parse_row_key(key).unwrap_or(0)
}

/// Returns the process of a worker.
fn pid_of(coordinator: &mut Coordinator, tenant: TenantId, worker: WorkerId) -> Option<u32> {
    let mut entries = Vec::new();
    coordinator.list_workers_into(LogicalTime::ZERO, tenant, &mut entries).ok()?;
    let entry = entries.iter().find(|entry| entry.worker == worker)?;
    entry.process.map(|process| process.process.pid)
}

/// Returns how often each key was processed, from the notes of the workers.
fn noted(directory: &Path) -> io::Result<BTreeMap<u64, u64>> {
    let mut times = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none() || !path.to_string_lossy().contains("/keys.") {
            continue;
        }
        for key in fs::read(path)?.chunks_exact(size_of::<u64>()) {
            let key = u64::from_le_bytes(key.try_into().expect("a chunk of that size"));
            *times.entry(key).or_insert(0) += 1;
        }
    }
    Ok(times)
}

/// The worker processes; those that still run are killed on drop.
struct Workers(Vec<Child>);

impl Workers {
    fn start(directory: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let mut workers = Self(Vec::new());
        for _ in 0..WORKERS {
            let mut command = Command::new(&program);
            command.args(["demo", "--worker"]).arg(directory);
            // Its own store, whatever the environment says.
            command.env_remove("GOSSIP_STORE").env_remove("GOSSIP_TENANT");
            command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
            workers.0.push(command.spawn()?);
        }
        Ok(workers)
    }

    fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }

    /// Kills a worker with SIGKILL. Returns whether it is one of these.
    fn kill(&mut self, pid: u32) -> io::Result<bool> {
        // Children only: the registry is data of a store, and no reason to kill another process.
        let Some(child) = self.0.iter_mut().find(|child| child.id() == pid) else {
            return Ok(false);
        };
        child.kill()?;
        child.wait()?;
        Ok(true)
    }

    fn wait(&mut self) -> io::Result<()> {
        for child in &mut self.0 {
            // Their standard input stays open until they have ended.
            let input = child.stdin.take();
            child.wait()?;
            drop(input);
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A private directory, removed on drop.
struct Directory(PathBuf);

impl Directory {
    fn new() -> io::Result<Self> {
        let nonce = gossip::coordination::store::fresh_nonce();
        let path = std::env::temp_dir().join(format!("gossip-demo-{nonce:016x}"));
        // Fails if it exists, so no one else has it.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What cannot be removed cannot be helped here.
        let _ = fs::remove_dir_all(&self.0);
    }
}

//! A worker process of the campaign: the worker of the product with its default settings, on a
//! coordinator that writes a history, with a processor that writes to the sink.

use std::ffi::OsStr;
use std::io::BufRead as _;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gossip::coordination::RunManagement as _;
use gossip::coordination::store::fresh_nonce;
use gossip::identity::RunId;
use gossip::runtime::{
    Drain, Event, Finish, Inline, ItemResult, Observer, Parts, Processor, SystemClock, TaskConfig,
    WorkerConfig, work, worker_of,
};
use gossip::sources::{Source, SourceOptions, parse_row_key};
use gossip::store::Backend;
use gossip::{DEFAULT_TENANT, WorkOptions, tenant_id};
use gossip_testkit::test_support::Proxy;

use super::history::Log;
use super::recorded::Recorded;
use super::sink::Connection;
use super::{NAMESPACE, Names, SINK, THREADS};
use crate::Outcome;

/// How long a worker tries to reach the cluster at its start, before any fault.
const START: Duration = Duration::from_secs(60);

/// The exit code of a worker whose campaign has ended.
const ORPHANED: i32 = 3;

/// The arguments of a worker.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) index: usize,
    pub(super) keys: u64,
    pub(super) run: u64,
    /// The members, as `HOST:PORT,HOST:PORT`.
    pub(super) endpoints: String,
    /// Whether it reaches them through a proxy that can delay.
    pub(super) is_slow: bool,
}

impl Order {
    pub(super) fn words(&self) -> [String; 5] {
        let Self { index, keys, run, endpoints, is_slow } = self;
        [
            index.to_string(),
            keys.to_string(),
            run.to_string(),
            endpoints.clone(),
            u8::from(*is_slow).to_string(),
        ]
    }

    pub(super) fn parse(words: &[&str]) -> Outcome<Self> {
        let [index, keys, run, endpoints, is_slow] = *words else {
            return Err("a worker has five arguments".into());
        };
        Ok(Self {
            index: index.parse()?,
            keys: keys.parse()?,
            run: run.parse()?,
            endpoints: endpoints.to_owned(),
            is_slow: is_slow == "1",
        })
    }
}

/// Works until the run is complete.
///
/// # Errors
///
/// If the run is not complete when the worker ends.
pub(super) fn run(directory: &Path, order: &Order) -> Outcome<String> {
    let log = Arc::new(Log::create(&directory.join(Names::history(order.index)))?);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    log.note(format_args!("clock {wall}"));
    let hosts: Vec<&str> = order.endpoints.split(',').collect();
    let proxies: Vec<Proxy> = match order.is_slow {
        true => hosts.iter().map(|host| Ok(Proxy::new(host.parse()?))).collect::<Outcome<_>>()?,
        false => Vec::new(),
    };
    let mut endpoints: Vec<String> = match order.is_slow {
        true => proxies.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port())).collect(),
        false => hosts.iter().map(|host| (*host).to_owned()).collect(),
    };
    // Each begins at another member.
    endpoints.rotate_left(order.index % hosts.len());
    thread::spawn(move || obey(&proxies));
    let backend = open(&format!("etcd://{}/{NAMESPACE}", endpoints.join(",")))?;
    let finish = work_on(&backend, directory, order, &log)?;
    log.note(format_args!("finish {finish:?}"));
    match finish {
        Finish::Complete => Ok(String::new()),
        other => Err(format!("worker {} ended with {other:?}", order.index).into()),
    }
}

/// Delays packets as the campaign says on standard input, and ends this process with the campaign.
fn obey(proxies: &[Proxy]) {
    for line in std::io::stdin().lock().lines() {
        let delay = line.ok().and_then(|line| line.trim().parse().ok());
        let delay = Duration::from_millis(delay.unwrap_or_default());
        proxies.iter().for_each(|proxy| proxy.delay(delay));
    }
    std::process::exit(ORPHANED);
}

fn open(url: &str) -> Outcome<Backend> {
    let (url, begun) = (url.parse()?, Instant::now());
    loop {
        match Backend::open(&url) {
            Ok(backend) => return Ok(backend),
            Err(error) if begun.elapsed() > START => return Err(error.into()),
            Err(_) => {}
        }
    }
}

fn work_on(backend: &Backend, directory: &Path, order: &Order, log: &Arc<Log>) -> Outcome<Finish> {
    let tenant = tenant_id(DEFAULT_TENANT)?;
    let (run, options) = (RunId::from_raw(order.run), WorkOptions::default());
    let range = format!("range:0..{}", order.keys);
    let source = Source::parse(OsStr::new(&range), SourceOptions::default())?;
    let connector = source.open()?;
    let settings = backend.coordinator().get_run(tenant, run)?.config();
    let config = WorkerConfig {
        tenant,
        run,
        worker: worker_of(run, fresh_nonce()),
        lease_ticks: settings.lease_duration(),
        threads: THREADS,
        task: TaskConfig { shard_retries: settings.max_shard_retries(), ..options.task },
        limits: options.limits,
        max_parked: options.max_parked,
        // Shards of a split have histories that begin in the middle.
        auto_split: false,
        store_patience: u64::try_from(options.store_patience.as_millis())?,
        seed: fresh_nonce(),
    };
    let (sink, observer) = (directory.join(SINK), Outages(Arc::clone(log)));
    let processor = |_thread: usize| -> Box<dyn Processor> { writing_to(&sink, order.index) };
    let finish = work(
        &config,
        Parts {
            coordinator: &|| Recorded::new(backend.coordinator(), Arc::clone(log)),
            connector: &*connector,
            processor: &processor,
            records: None,
            clock: &SystemClock::new(),
            // Each worker is a machine of its own: it sees no process of another one.
            host: &(),
            drain: &Drain::new(),
            observer: &observer,
        },
    )?;
    backend.retire();
    Ok(finish)
}

/// Returns the processor of one thread, with its own connection to the sink.
fn writing_to(sink: &Path, worker: usize) -> Box<dyn Processor> {
    let mut connection = Connection::open(sink).expect("the sink runs as long as the campaign");
    Box::new(Inline::new(move |work, _buffer: &mut Vec<u8>| {
        let key = parse_row_key(work.key()).expect("the source is a range of integers");
        let (fence, shard) = (work.fence.as_raw(), work.shard.shard().as_raw());
        match connection.process(key, fence, shard, worker) {
            Ok(true) => ItemResult::Done,
            // Another worker has processed it under a higher fence; this one learns of it soon.
            Ok(false) => ItemResult::Undone,
            Err(error) => ItemResult::Failed(error.to_string().into()),
        }
    }))
}

/// Notes the outages that the worker reports to its user.
struct Outages(Arc<Log>);

impl Observer for Outages {
    fn observe(&self, event: Event<'_>) {
        if let Event::StoreUnusable { .. } = event {
            self.0.note("outage");
        }
    }

    fn wants_kernel_events(&self) -> bool {
        false
    }
}

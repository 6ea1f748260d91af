use std::cell::Cell;
use std::time::Duration;

use gossip_contracts::coordination::{CursorSemantics, MAX_METADATA_SIZE, ShardSpec, ShardSpecRef};
use gossip_contracts::identity::{OpId, RunId, ShardId, TenantId};
use gossip_coordination::{RunConfig, RunManagement as _, RunStatus};
use gossip_frontier::{ShardHint, decode_hint};
use rstest::rstest;

use crate::clock::{Clock as _, SystemClock};
use crate::connectors::{SourceOptions, SourceStamp};
use crate::job::{Job, JobError, MAX_JOB_SIZE, Signer, StoredJob, StreamFormat};
use crate::job_key::JobKey;
use crate::run_plan::{MAX_GENERATIONS, OpenRunError, OpenedRun, OpenedState, RunPlan, open_run};
use crate::test_support::{TENANT, World};

fn config() -> RunConfig {
    RunConfig::try_new(CursorSemantics::Completed, 1000, Some(3)).unwrap()
}

fn plan<'a>(source: &'a [u8], settings: &'a [u8]) -> RunPlan<'a> {
    RunPlan { tenant: TENANT, source, settings, config: config(), restart: false }
}

fn cuts(at: &[&[u8]]) -> Vec<ShardSpec> {
    at.windows(2).map(|pair| ShardSpec::new(pair[0], pair[1], b"job")).collect()
}

fn open(world: &World, plan: &RunPlan<'_>, at: &[&[u8]]) -> OpenedRun {
    let (mut handle, clock) = (world.handle(), SystemClock::new());
    open_run(&mut handle, &clock, &|_| {}, plan, &|_| Ok(cuts(at))).unwrap()
}

const CUTS: [&[u8]; 3] = [b"a", b"m", b"z"];

#[test]
fn the_same_plan_finds_the_same_run() {
    let (world, plan) = (World::new(), plan(b"source", b"settings"));
    let first = open(&world, &plan, &CUTS);
    assert_eq!((first.generation, first.state), (0, OpenedState::New));
    // Other cuts do not matter any more: they are decided once.
    let second = open(&world, &plan, &[b"a", b"z"]);
    assert_eq!(second, OpenedRun { state: OpenedState::Resumed, ..first });
    let record = world.handle().get_run(TENANT, first.run).unwrap();
    assert_eq!((record.status(), record.root_shards().len()), (RunStatus::Active, 2));
}

#[test]
fn runs_of_one_source_stand_together() {
    let one = plan(b"source", b"one");
    let (before, is_ours) = one.ids_of_source();
    for (source, settings, ours) in
        [(&b"source"[..], &b"one"[..], true), (b"source", b"two", true), (b"other", b"one", false)]
    {
        let run = plan(source, settings).run_id(0);
        assert_eq!(is_ours(run), ours);
        assert!(!ours || before.is_none_or(|before| before < run));
    }
    assert_ne!(one.run_id(0), plan(b"source", b"two").run_id(0));
    assert_ne!(one.run_id(0), one.run_id(1));
    let longer = RunConfig::try_new(CursorSemantics::Completed, 2000, Some(3)).unwrap();
    assert_ne!(one.run_id(0), RunPlan { config: longer, ..one }.run_id(0), "a setting like others");
}

#[test]
fn a_cancelled_or_deleted_run_gives_way_to_the_next_generation() {
    let (world, plan, clock) = (World::new(), plan(b"source", b""), SystemClock::new());
    let first = open(&world, &plan, &CUTS);
    let mut admin = world.handle();
    admin.cancel_run(clock.now(), TENANT, first.run, OpId::from_raw(3)).unwrap();
    let second = open(&world, &plan, &CUTS);
    assert_eq!((second.generation, second.state), (1, OpenedState::New));
    admin.delete_run(clock.now(), TENANT, first.run, OpId::from_raw(4)).unwrap();
    assert_eq!(open(&world, &plan, &CUTS).generation, 1);
}

/// Ids of generations are derived and never stored, so all of them are looked up.
#[test]
fn plan_without_a_free_generation_is_refused() {
    let (world, plan, clock) = (World::new(), plan(b"source", b""), SystemClock::new());
    let mut admin = world.handle();
    for generation in 0..MAX_GENERATIONS {
        let run = plan.run_id(generation);
        admin.create_run(clock.now(), TENANT, run, config()).unwrap();
        admin.cancel_run(clock.now(), TENANT, run, OpId::from_raw(2)).unwrap();
    }
    let opened = open_run(&mut admin, &clock, &|_| {}, &plan, &|_| Ok(cuts(&CUTS)));
    assert_eq!(opened, Err(OpenRunError::TooManyGenerations));
    let text = "there were 10000 runs of this kind; delete the store, or change settings";
    assert_eq!(opened.unwrap_err().to_string(), text);
}

#[test]
fn a_run_that_is_over_is_left_alone_unless_asked() {
    let (world, plan, clock) = (World::new(), plan(b"source", b""), SystemClock::new());
    let first = open(&world, &plan, &CUTS);
    world.handle().fail_run(clock.now(), TENANT, first.run, OpId::from_raw(3)).unwrap();
    assert_eq!(open(&world, &plan, &CUTS).state, OpenedState::Over(RunStatus::Failed));
    let again = open(&world, &RunPlan { restart: true, ..plan }, &CUTS);
    assert_eq!((again.generation, again.state), (1, OpenedState::New));
}

/// A process that died between making a run and giving it shards.
#[test]
fn a_registration_that_broke_off_is_gone_on_with() {
    let (world, plan, clock) = (World::new(), plan(b"source", b""), SystemClock::new());
    world.handle().create_run(clock.now(), TENANT, plan.run_id(0), config()).unwrap();
    let opened = open(&world, &plan, &CUTS);
    assert_eq!((opened.generation, opened.state), (0, OpenedState::Resumed));
    assert_eq!(world.handle().get_run(TENANT, opened.run).unwrap().status(), RunStatus::Active);
}

/// It was in the middle of its chunks, and the source has changed since.
#[test]
fn an_unfinished_registration_of_other_cuts_is_abandoned() {
    let (world, plan, clock) = (World::new(), plan(b"source", b""), SystemClock::new());
    let store = world.small_store();
    let mut handle = store();
    handle.create_run(clock.now(), TENANT, plan.run_id(0), config()).unwrap();
    // The first chunk is stored, and nothing of what follows.
    break_registration(&mut handle, &clock, &plan);
    let waits = Cell::new(0_u32);
    let pause = |_: Duration| waits.set(waits.get() + 1);
    let other: [&[u8]; 4] = [b"a", b"b", b"c", b"z"];
    let opened = open_run(&mut store(), &clock, &pause, &plan, &|_| Ok(cuts(&other))).unwrap();
    assert_eq!((opened.generation, opened.state), (1, OpenedState::New));
    assert!(waits.get() > 1, "the first process had time to finish");
}

fn break_registration(
    handle: &mut crate::test_support::Coordinator,
    clock: &SystemClock,
    plan: &RunPlan<'_>,
) {
    use gossip_coordination::store::Fault;
    handle.store_mut().inject(Fault::None);
    handle.store_mut().inject_always(Some(Fault::Fail));
    let many: Vec<Vec<u8>> = (0..200).map(|n| format!("k{n:03}").into_bytes()).collect();
    let many: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
    let broken = open_run(handle, clock, &|_| {}, plan, &|_| Ok(cuts(&many)));
    assert!(broken.is_err(), "{broken:?}");
}

#[test]
fn a_shard_carries_its_job() {
    let world = World::new();
    let opened = open(&world, &plan(b"source", b""), &CUTS);
    let mut rows = Vec::new();
    let (now, filter) = (SystemClock::new().now(), gossip_coordination::ShardFilter::all());
    world.handle().list_shards_into(now, TENANT, opened.run, filter, &mut rows).unwrap();
    assert!(rows.iter().all(|row| &*row.metadata == b"job"));
}

/// More shards than one builder holds: their ids continue from batch to batch.
#[test]
fn shards_of_several_batches_are_registered_with_consecutive_ids() {
    let world = World::new();
    let bounds: Vec<_> = (0..=2_500_u32).map(|bound| (bound + 1).to_be_bytes()).collect();
    let bounds: Vec<&[u8]> = bounds.iter().map(|bound| &bound[..]).collect();
    let opened = open(&world, &plan(b"source", b""), &bounds);
    let mut rows = Vec::new();
    let (now, filter) = (SystemClock::new().now(), gossip_coordination::ShardFilter::all());
    world.handle().list_shards_into(now, TENANT, opened.run, filter, &mut rows).unwrap();
    rows.sort_by_key(|row| row.shard);
    assert_eq!(rows.len(), 2_500);
    for (row, id) in rows.iter().zip(1..) {
        assert_eq!(row.shard, ShardId::from_raw(id));
        assert_eq!(*row.start, u32::try_from(id).unwrap().to_be_bytes());
    }
}

fn job() -> Job {
    Job {
        source: "csv:/data/x.csv".into(),
        options: SourceOptions { no_header: true, ..SourceOptions::NONE },
        stamp: Some(SourceStamp { len: 5, modified: 77 }),
        command: vec!["wc".into(), "".into(), "{}".into()],
        stream: Some(StreamFormat::Json),
    }
}

#[rstest]
#[case::full(job())]
#[case::lines(Job { stream: Some(StreamFormat::Lines), ..job() })]
#[case::plain(Job { stamp: None, stream: None, command: vec![], ..job() })]
fn a_job_is_read_as_it_was_written(#[case] job: Job) {
    let bytes = job.encode().unwrap();
    assert_eq!(Job::decode(&bytes).as_ref(), Ok(&job));
    let metadata = job.metadata(ShardHint::Range, None).unwrap();
    assert_eq!(Job::of_shard(&metadata), Ok(job));
    for end in 0..bytes.len() {
        assert_eq!(Job::decode(&bytes[..end]), Err(JobError::Unreadable { size: end }));
    }
    let longer = [&bytes[..], b"x"].concat();
    assert_eq!(Job::decode(&longer), Err(JobError::Unreadable { size: longer.len() }));
}

#[test]
fn a_job_that_does_not_fit_is_refused() {
    let long = Job { command: vec!["x".repeat(1 << 20).into()], ..job() };
    assert!(matches!(long.encode(), Err(JobError::TooLong { .. })));
}

/// The greatest job has space for every hint of a built-in source, to the byte.
#[test]
fn the_greatest_job_fits_beside_a_hint_of_rows() {
    let of_len = |len| Job { command: vec!["x".repeat(len).into()], ..job() };
    let overhead = of_len(0).encode().unwrap().len();
    let rows = ShardHint::Manifest { manifest_id: 0, start_row: 0, end_row: u64::MAX };
    let greatest = of_len(MAX_JOB_SIZE - overhead);
    let metadata = greatest.metadata(rows, None).unwrap();
    assert_eq!(metadata.len(), MAX_METADATA_SIZE);
    let spec = ShardSpecRef::new(b"a", b"z", &metadata);
    assert_eq!((Job::of_shard(&metadata), decode_hint(spec)), (Ok(greatest), Ok(rows)));
    let longer = of_len(MAX_JOB_SIZE - overhead + 1);
    let too_long = JobError::TooLong { size: MAX_JOB_SIZE + 1, max: MAX_JOB_SIZE };
    assert_eq!(longer.metadata(ShardHint::Range, None), Err(too_long));
}

#[test]
fn signature_binds_a_job_to_its_key_tenant_and_run() {
    let (key, run) = (JobKey::from_bytes([1; JobKey::LEN]), RunId::from_raw(7));
    let signer = Signer { key: &key, tenant: TENANT, run };
    let metadata = job().metadata(ShardHint::Range, Some(signer)).unwrap();
    let stored = StoredJob::of_shard(&metadata).unwrap();
    assert_eq!(stored.job(), &job());
    assert!(stored.is_signed(&key, TENANT, run));
    let (other_key, other) = (JobKey::from_bytes([2; JobKey::LEN]), TenantId::from_bytes([9; 32]));
    assert!(!stored.is_signed(&other_key, TENANT, run));
    assert!(!stored.is_signed(&key, other, run));
    assert!(!stored.is_signed(&key, TENANT, RunId::from_raw(8)));
    // Each byte of the job and of the MAC counts.
    let len = stored.job().encode().unwrap().len() + 33;
    for at in metadata.len() - len..metadata.len() {
        let mut forged = metadata.clone();
        forged[at] ^= 1;
        let forged = StoredJob::of_shard(&forged);
        assert!(forged.is_err() || !forged.unwrap().is_signed(&key, TENANT, run), "byte {at}");
    }
    let unsigned = job().metadata(ShardHint::Range, None).unwrap();
    assert!(!StoredJob::of_shard(&unsigned).unwrap().is_signed(&key, TENANT, run));
    let shown = format!("{stored:?} {key:?} {signer:?}");
    assert!(!shown.contains("[1, 1"), "{shown}");
}

#[test]
fn greatest_signed_job_fits_to_the_byte() {
    let of_len = |len| Job { command: vec!["x".repeat(len).into()], ..job() };
    let overhead = of_len(0).encode().unwrap().len() + 33;
    let rows = ShardHint::Manifest { manifest_id: 0, start_row: 0, end_row: u64::MAX };
    let key = JobKey::from_bytes([1; JobKey::LEN]);
    let signer = Some(Signer { key: &key, tenant: TENANT, run: RunId::from_raw(7) });
    let greatest = of_len(MAX_JOB_SIZE - overhead).metadata(rows, signer).unwrap();
    assert_eq!(greatest.len(), MAX_METADATA_SIZE);
    let too_long = JobError::TooLong { size: MAX_JOB_SIZE + 1, max: MAX_JOB_SIZE };
    assert_eq!(of_len(MAX_JOB_SIZE - overhead + 1).metadata(rows, signer), Err(too_long));
}

#[test]
fn settings_are_the_command_and_not_the_state_of_the_source() {
    assert_eq!(job().settings(), Job { stamp: None, ..job() }.settings());
    for stream in [None, Some(StreamFormat::Lines)] {
        assert_ne!(job().settings(), Job { stream, ..job() }.settings());
    }
    let other = Job { command: vec!["wc".into(), "{}".into()], ..job() };
    assert_ne!(job().settings(), other.settings());
}

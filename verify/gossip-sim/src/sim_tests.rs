//! The short form of the campaign, and tests of the simulator itself.

use std::collections::BTreeSet;
use std::rc::Rc;

use gossip_contracts::identity::{TenantId, WorkerId};
use gossip_coordination::store::{Answer, Key, Read, Txn};

use super::faults::{Dice, FaultTally, Place};
use super::keyspace::{KEYS_MAX, Keyspace};
use super::oracle::Rule;
use super::random::Stream;
use super::wire::Roll;
use super::world::World;
use super::{
    Bug, FaultKind, FaultSet, PairReport, Plan, Report, Simulator, Verb, fault_table, pair, shrink,
};

/// Simulations of the short form.
const SEEDS: u64 = 64;

/// Operations of each before faults end.
const OPERATIONS: u64 = 2_500;

/// Simulations in which writes are lost one by one.
const LOST_SEEDS: u64 = 200;

/// Of those, the ones in which every write is lost. In the others only writes of splits are, which
/// change both parts of a shard.
const ALL_LOST_SEEDS: u64 = 4;

/// Simulations in which only writes are torn.
const TORN_SEEDS: u64 = 12;

/// Simulations in which the store is restored.
const RESTORED_SEEDS: u64 = 20;

/// Simulations in which a mutant must be found.
const BUG_SEEDS: u64 = 30;

/// Seeds of the pairs of the short form. The last has a torn write, which one pair in ten has.
const PAIR_SEEDS: [u64; 7] = [1, 2, 3, 4, 5, 6, 24];

/// At most one operation in this many may be checked with a suspended rule.
const EXCUSED_ONE_IN: u64 = 25;

fn run(plan: &Plan) -> Report {
    match Simulator::new().run(plan) {
        Ok(report) => report,
        Err(failure) => panic!("{:?}\n{}", failure.violation, plan.command()),
    }
}

/// One half of the short form: two tests, so that two cores run it.
fn campaign(seeds: std::ops::Range<u64>) {
    let mut sum = Report::default();
    for seed in seeds {
        // Simulations differ in their faults; every fourth has all that suspend no rule.
        let faults = seed.is_multiple_of(4).then(FaultSet::usual);
        sum.add(&run(&Plan::of_seed(seed, OPERATIONS, faults)));
    }
    println!("{} operations, {} commits, {:?}", sum.operations, sum.commits, sum.stale);
    assert_eq!(sum.stale.operations_accepted + sum.stale.keys_accepted, 0);
    let excused = sum.operations_excused;
    assert!(excused * EXCUSED_ONE_IN <= sum.operations, "{excused} of {}", sum.operations);
    assert!(sum.stale.operations * 100 > sum.operations, "{:?}", sum.stale);
    assert!(sum.stale.keys > 200, "{:?}", sum.stale);
    assert!(sum.true_time.void_grants > 0, "{:?}", sum.true_time);
    let rare = [FaultKind::LostWrite, FaultKind::Restore];
    let missing: Vec<_> =
        sum.below_floor(3).into_iter().filter(|kind| !rare.contains(kind)).collect();
    assert!(missing.is_empty(), "too few of {missing:?}");
    assert!(sum.corruption_reported > 50 && sum.runs_finished > 100, "{sum:?}");
    let unused: Vec<_> =
        Verb::ALL.iter().filter(|verb| sum.coverage.of(**verb).is_empty()).collect();
    assert!(unused.is_empty() && sum.coverage.pair_count() > 130, "{unused:?}");
}

#[test]
fn simulations_of_many_seeds_keep_the_rules() {
    campaign(0..SEEDS / 2);
}

#[test]
fn simulations_of_more_seeds_keep_the_rules() {
    campaign(SEEDS / 2..SEEDS);
}

/// A torn write counts when a process reads it before the value is written again, which one in
/// five simulations with all faults has.
#[test]
fn torn_writes_are_reported_and_repaired() {
    let mut sum = Report::default();
    for seed in 0..TORN_SEEDS {
        let faults = FaultSet::NONE.with(FaultKind::TornWrite);
        sum.add(&run(&Plan { roughness: 16, ..Plan::of_seed(seed, OPERATIONS, Some(faults)) }));
    }
    let torn = sum.faults.of(FaultKind::TornWrite);
    println!("{torn} torn writes were read, {} reads were refused", sum.corruption_reported);
    assert!(torn >= 10 && sum.corruption_reported > 100, "{sum:?}");
}

#[test]
fn simulations_without_faults_keep_the_rules() {
    for seed in 1..=6 {
        let report = run(&Plan::of_seed(seed, OPERATIONS, Some(FaultSet::NONE)));
        assert!(FaultKind::ALL.iter().all(|kind| report.faults.of(*kind) == 0));
        assert_eq!((report.corruption_reported, report.older_reported), (0, 0), "a false alarm");
    }
}

/// A read of an old version excuses that operation and no other.
#[test]
fn an_old_version_excuses_only_the_operation_that_read_it() {
    let faults = FaultSet::NONE.with(FaultKind::OldVersionRead);
    let plan = Plan { roughness: 16, ..Plan::of_seed(3, 2 * OPERATIONS, Some(faults)) };
    let report = run(&plan);
    let shown = report.faults.of(FaultKind::OldVersionRead);
    assert!(shown > 10 && (1..=shown).contains(&report.operations_excused), "{report:?}");
    let wrong = Plan { bug: Some(Bug::CheckpointLost), ..plan };
    let failure = Simulator::new().run(&wrong).expect_err("no fault excuses this");
    assert_eq!(failure.violation.rule, Rule::Acknowledged);
}

/// Each lost write has a simulation of its own. A store that returns half of an old state is
/// detected by every operation that reads both halves: the oracle requires that the operation fails
/// or, as a claim, grants another shard. A store that returns all of an old state is detected by
/// handles with a cached revision, and undetectable by the others; such a simulation is compared
/// with one without the loss.
#[test]
fn half_of_a_lost_write_is_detected() {
    let faults = FaultSet::NONE.with(FaultKind::LostWrite);
    let (mut halves, mut met, mut harmless, mut silent, mut fell) = (0, 0, 0, 0, 0);
    for seed in 1..=LOST_SEEDS {
        let usual = Plan { only: Some(Vec::new()), ..Plan::of_seed(seed, 800, Some(faults)) };
        let whole = Plan { roughness: 4, ..usual };
        let spared = traced(&whole);
        let result = answers(&spared);
        let (mut ended, mut splitting) = (0, BTreeSet::new());
        for line in &spared {
            ended += u64::from(line.contains(" returned ") && line.contains(" op "));
            let process = line.split_whitespace().nth(1).unwrap_or_default();
            if line.contains(" op ") && line.contains(" grant ") {
                splitting.remove(process);
                splitting.extend(line.contains(" SplitResidual ").then_some(process));
            }
            let Some((_, number)) = line.split_once("(number ") else { continue };
            // The fault is injected only in the last quarter.
            let too_early = ended < whole.operations / 4 * 3;
            if too_early || seed > ALL_LOST_SEEDS && !splitting.contains(process) {
                continue;
            }
            let number = u64::from_str_radix(number.trim_end_matches(')'), 16).expect("a number");
            let lost = Plan { only: Some(vec![number]), ..whole.clone() };
            let (trace, report) = traced_with_report(&lost);
            if report.faults.of(FaultKind::LostWrite) == 0 {
                continue;
            }
            fell += u64::from(report.older_reported > 0);
            if trace.iter().any(|line| line.contains("loses half of a shard: true")) {
                halves += 1;
                met += u64::from(report.damaged_reads > 0);
            } else if result.starts_with(&answers(&trace)) {
                harmless += 1;
            } else {
                silent += u64::from(report.corruption_reported == 0);
            }
        }
    }
    println!("{halves} halves, {met} met; {fell} by a revision, {harmless} harmless, {silent} not");
    assert!(met > 3 && fell > 0 && silent > 0, "{halves} {met} {fell} {harmless} {silent}");
}

/// Processes that were not stopped have leases and caches of a state that the restored store does
/// not have. The mutant `FloorsNotRaised` shows that the rules find a fence that is accepted or
/// issued twice.
#[test]
fn a_restored_store_accepts_no_lease_of_before() {
    let mut sum = Report::default();
    for seed in 1..=RESTORED_SEEDS {
        let faults = match seed % 2 {
            0 => FaultSet::usual(),
            _ => FaultSet::NONE,
        };
        let usual = Plan::of_seed(seed, OPERATIONS, Some(faults.with(FaultKind::Restore)));
        sum.add(&run(&Plan { roughness: 4, ..usual }));
    }
    let restores = sum.faults.of(FaultKind::Restore);
    println!("{restores} restores, {:?}", sum.stale);
    assert!(restores > 100, "{restores}");
    assert!(sum.stale.operations > 100 && sum.stale.operations_accepted == 0, "{:?}", sum.stale);
}

#[test]
fn a_fault_counts_when_it_changes_something() {
    let revoked = |binds: bool| {
        let faults = FaultSet::NONE.with(FaultKind::EarlyRevoke);
        let usual = Plan::of_seed(4, OPERATIONS, Some(faults));
        run(&Plan { binds, ..usual }).faults.of(FaultKind::EarlyRevoke)
    };
    assert!(revoked(true) > 0);
    assert_eq!(revoked(false), 0, "no key was bound");
    let faults = FaultSet::NONE.with(FaultKind::PastLifeReply);
    let past = run(&Plan::of_seed(4, OPERATIONS, Some(faults)));
    assert!(past.faults.of(FaultKind::PastLifeReply) > 0, "no commit of a past life was applied");
}

#[test]
fn a_rule_is_suspended_only_by_an_injected_fault() {
    let faults = FaultSet::NONE.with(FaultKind::LostWrite);
    let might = Plan::of_seed(6, OPERATIONS, Some(faults));
    let happened = run(&might);
    assert!(happened.faults.of(FaultKind::LostWrite) > 0);
    assert!(happened.operations_excused > 0);
    let judged = happened.operations - happened.operations_excused;
    assert!(judged >= OPERATIONS / 4 * 3, "{judged}");
    let never = Plan { only: Some(Vec::new()), ..might };
    assert_eq!(run(&never).operations_excused, 0);
    let wrong = Plan { bug: Some(Bug::CheckpointLost), ..never };
    let failure = Simulator::new().run(&wrong).expect_err("no fault excuses this");
    assert_eq!(failure.violation.rule, Rule::Acknowledged);
}

/// The polls of a simulation that need not finish do not count as operations of a campaign.
#[test]
fn a_simulation_that_need_not_finish_ends_with_the_faults() {
    let faults = FaultSet::usual().with(FaultKind::LostWrite);
    for seed in 1..=4 {
        let plan = Plan { roughness: 4, ..Plan::of_seed(seed, 1_000, Some(faults)) };
        let report = run(&plan);
        assert!(report.faults.of(FaultKind::LostWrite) > 0);
        assert_eq!(report.operations, plan.operations, "seed {seed}");
        // Writes are lost in the last quarter; an old version excuses the operation that read it.
        let held = report.judged() + report.faults.of(FaultKind::OldVersionRead);
        assert!(held >= plan.operations / 4 * 3, "seed {seed}: {held}");
    }
}

/// Runs a simulation with a trace.
fn traced(plan: &Plan) -> Vec<String> {
    traced_with_report(plan).0
}

fn traced_with_report(plan: &Plan) -> (Vec<String>, Report) {
    let plan = Plan { trace: true, ..plan.clone() };
    let world = World::new(plan.clone(), Rc::new(Keyspace::new()), None);
    let shared = Rc::clone(&world.shared);
    match world.run() {
        Ok(report) => {
            let trace = shared.borrow_mut().trace.take();
            (trace.expect("the plan asks for one"), report)
        }
        Err(failure) => panic!("{:?}\n{}", failure.violation, plan.command()),
    }
}

/// Returns the results of all operations with their times.
fn answers(trace: &[String]) -> Vec<String> {
    let is_answer = |line: &&String| line.contains(" op ") && line.contains(" returned ");
    let is_digest = |line: &&String| line.contains(" answer ");
    trace.iter().filter(|line| is_answer(line) || is_digest(line)).cloned().collect()
}

/// Returns the result lines of the first operation of `process` that ends after line `from`.
fn answer_after(trace: &[String], from: usize, process: &str) -> Vec<String> {
    let said = trace[from..].iter().map(|line| line[8..].to_owned());
    let mut answer = Vec::new();
    for line in said.filter(|line| line.starts_with(&format!("{process} op "))) {
        if line.contains(" answer ") || line.contains(" returned ") {
            answer.push(line);
        }
        if answer.last().is_some_and(|line| line.contains(" returned ")) {
            return answer;
        }
    }
    Vec::new()
}

/// Maximum number of simulations in which values are damaged one by one; a few have every kind.
const DAMAGED_SEEDS_MAX: u64 = 24;

/// Each damaged value has a simulation of its own, compared with one without damage. Until the
/// damage both are the same, so the result of the affected operation can be compared with the
/// undamaged one.
#[test]
fn damaged_bytes_end_an_operation_or_change_nothing() {
    let faults = FaultSet::parse("bit-flip,truncated-read,wrong-key").expect("names of faults");
    let (mut kinds, mut failed, mut unchanged) = (BTreeSet::new(), 0, 0);
    // Continues until nearly every kind was damaged: which simulations have them depends on the
    // workload.
    for seed in 1..=DAMAGED_SEEDS_MAX {
        if kinds.len() >= 9 && failed > 20 && unchanged > 5 {
            break;
        }
        let usual = Plan { only: Some(Vec::new()), ..Plan::of_seed(seed, 250, Some(faults)) };
        let whole = Plan { roughness: 12, binds: true, ..usual };
        let spared = traced(&whole);
        for (place, line) in spared.iter().enumerate() {
            let Some((_, number)) = line.split_once("(number ") else { continue };
            let process = line[8..].split(' ').next().expect("a line names its process");
            let number = u64::from_str_radix(number.trim_end_matches(')'), 16).expect("a number");
            let damaged = traced(&Plan { only: Some(vec![number]), ..whole.clone() });
            assert!(damaged[place].contains("fault"), "{}", damaged[place]);
            let Some((_, kind)) = damaged[place + 1].split_once("reads a damaged ") else {
                continue;
            };
            kinds.insert(kind.to_owned());
            let (before, after) =
                (answer_after(&spared, place, process), answer_after(&damaged, place, process));
            let result = after.last().map_or("", String::as_str);
            let fails = ["BackendError", "Corruption", "Damaged", "Transient", "Refused"];
            // A holder whose owner key cannot be read is taken to be alive, so others wait longer.
            let waits =
                ["AlreadyLeased", "NoneAvailable"].iter().any(|name| result.ends_with(name));
            // A batch has a result for each lease, and the oracle requires that one of them failed.
            let one_of_many = result.contains(" RenewMany returned ") && after != before;
            // A claim skips a damaged shard; the oracle judges the grant of another one.
            let of_shard = kind == "ShardHot" || kind == "ShardCold";
            let skips = of_shard && result.contains(" Claim returned ") && after != before;
            let fails = fails.iter().any(|name| result.ends_with(name)) || one_of_many || skips;
            if fails || kind == "Owner" && waits {
                failed += 1;
            } else {
                assert_eq!(after, before, "seed {seed} number {number:x}: a wrong {kind}");
                unchanged += 1;
            }
        }
    }
    println!("{failed} failed, {unchanged} unchanged, of {kinds:?}");
    assert!(failed > 20 && unchanged > 5 && kinds.len() >= 9, "{failed} {unchanged} {kinds:?}");
}

#[test]
fn the_same_plan_gives_the_same_events() {
    for seed in [3, 8, 21] {
        let plan = Plan::of_seed(seed, 1_000, Some(FaultSet::usual()));
        let (first, report) = traced_with_report(&plan);
        let (second, again) = traced_with_report(&plan);
        let both = first.iter().zip(&second);
        let differ = both.enumerate().find(|(_, (one, other))| one != other);
        assert_eq!(differ, None, "events and where they differ");
        assert_eq!(first.len(), second.len());
        assert!(first.len() > 1_000, "{} events", first.len());
        assert_eq!(report.to_line(), again.to_line());
        assert_eq!(report.trace_hash, run(&plan).trace_hash, "tracing changes nothing");
        let (other, of_other) = traced_with_report(&Plan { seed: seed + 1, ..plan });
        assert_ne!(report.trace_hash, of_other.trace_hash, "another seed gives another hash");
        assert_ne!(first, other);
    }
}

/// One tenant's results do not depend on another tenant; the short form of `--pairs`.
#[test]
fn a_tenant_gets_the_same_results_with_and_without_another() {
    let (simulator, mut sum) = (Simulator::new(), PairReport::default());
    for seed in PAIR_SEEDS {
        match simulator.run_pair(seed) {
            Ok(report) => sum.add(&report),
            Err(failure) => {
                let mut result = Vec::new();
                simulator
                    .write_pair_failure(&failure, &mut result)
                    .expect("a vector takes everything");
                panic!("{}", String::from_utf8_lossy(&result));
            }
        }
    }
    assert!(sum.first > 1_000 && sum.between > 1_000, "{sum:?}");
    assert_eq!(sum.pairs, PAIR_SEEDS.len() as u64);
    let idle = FaultKind::ALL.iter().filter(|kind| sum.faults.of(**kind) == 0);
    let idle: Vec<_> = idle.map(|kind| kind.name()).collect();
    assert_eq!(idle, ["lost-write", "wrong-key", "restore"], "kinds that no pair has");
}

/// Without the rule about listings, only the results can differ. The mutant `WorkersOfAllTenants`
/// makes this test fail.
#[test]
fn lists_are_answered_the_same_with_and_without_another_tenant() {
    let result = |plan: Plan| {
        let world = World::new(plan, Rc::new(Keyspace::new()), None);
        world.shared.borrow_mut().oracle.suspend(&[Rule::Acknowledged]);
        world.run().expect("no other rule is about it").tenant_hashes[0]
    };
    let apart = |seed| {
        let [both, alone] = pair(seed).map(result);
        both != alone
    };
    assert!(!(1..=6).any(apart), "an answer depends on another tenant");
}

#[test]
fn every_mutant_of_the_store_is_found() {
    let simulator = Simulator::new();
    for bug in Bug::ALL {
        let mut plans =
            (1..=BUG_SEEDS).map(|seed| bug.in_plan(Plan::of_seed(seed, OPERATIONS, None)));
        let found = plans.find_map(|plan| simulator.run(&plan).err());
        let found = found.unwrap_or_else(|| panic!("{bug:?} was not found"));
        println!("{bug:?}: {:?}", found.violation);
    }
}

#[test]
fn a_failure_shrinks_to_a_plan_with_the_same_failure() {
    let simulator = Simulator::new();
    let bug = Some(Bug::CheckpointLost);
    let plan = Plan { bug, ..Plan::of_seed(5, 600, Some(FaultSet::usual())) };
    let rule = |plan: &Plan| simulator.run(plan).expect_err("it fails").violation.rule;
    let small = shrink(&simulator, plan.clone());
    assert_eq!(rule(&small), rule(&plan));
    assert!(small.operations < plan.operations && small.faults == FaultSet::NONE, "{small:?}");
    assert_eq!((small.tenants, small.workers), (1, 1));
    assert!(small.command().contains("--faults none"));
}

#[test]
fn a_simulation_that_does_not_finish_fails() {
    let plan = Plan { calm_ticks: 1, ..Plan::of_seed(2, 500, Some(FaultSet::NONE)) };
    let failure = Simulator::new().run(&plan).expect_err("one tick is not enough");
    assert_eq!(failure.violation.rule, Rule::NeverFinishes);
}

#[test]
fn a_panic_of_a_program_is_a_violation() {
    let plan = Plan::of_seed(2, 500, Some(FaultSet::NONE));
    let mut world = World::new(plan, Rc::new(Keyspace::new()), None);
    world.processes[0].program = Some(Box::pin(async { panic!("requested by the test") }));
    world.poll(0);
    let failure = world.run().expect_err("a panic is a violation");
    assert_eq!(
        (failure.violation.rule, &*failure.violation.why),
        (Rule::Panicked, "requested by the test")
    );
}

#[test]
fn a_panic_is_a_violation_while_the_oracle_is_borrowed() {
    let plan = Plan::of_seed(2, 500, Some(FaultSet::NONE));
    let mut world = World::new(plan, Rc::new(Keyspace::new()), None);
    let shared = Rc::clone(&world.shared);
    let held = shared.borrow_mut();
    world.panicked("requested by the test");
    drop(held);
    let failure = world.run().expect_err("a panic is a violation");
    assert_eq!(
        (failure.violation.rule, &*failure.violation.why),
        (Rule::Panicked, "requested by the test")
    );
    assert_eq!(failure.operations, 0, "nothing is simulated after it");
}

/// Returns the first dice of a process, with `between` called between the rolls.
fn dice(faults: FaultSet, between: impl Fn(&mut World)) -> Vec<Option<FaultKind>> {
    let plan = Plan { roughness: 16, ..Plan::of_seed(7, OPERATIONS, Some(faults)) };
    let mut world = World::new(plan, Rc::new(Keyspace::new()), None);
    let roll = |_| {
        let kind = world.roll(1, Roll::Message);
        between(&mut world);
        kind
    };
    (0..500).map(roll).collect()
}

#[test]
fn draws_of_a_fault_do_not_shift_the_dice() {
    let plain = dice(FaultSet::usual(), |_| ());
    assert!(plain.iter().flatten().count() > 50);
    let drawn = dice(FaultSet::usual(), |world| {
        world.luck(1, 9);
        world.processes[1].latency.draw();
    });
    assert_eq!(drawn, plain);
    let few = dice(FaultSet::usual().without(FaultKind::MessageDelay), |_| ());
    let without = |kind: Option<FaultKind>| kind.filter(|kind| *kind != FaultKind::MessageDelay);
    assert_eq!(few, plain.into_iter().map(without).collect::<Vec<_>>());
}

#[test]
fn a_wrong_key_read_may_return_any_other_value() {
    let plan = Plan::of_seed(7, OPERATIONS, None);
    let mut world = World::new(plan, Rc::new(Keyspace::new()), None);
    let tenant = TenantId::from_bytes([9; 32]);
    let key = |worker| Key::Worker { tenant, worker: WorkerId::from_raw(worker) };
    let mut txn = Txn::new();
    for (worker, bytes) in [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")] {
        txn.put(key(worker), bytes.to_vec());
    }
    world.disk.apply(&txn, 0);
    let reads = [Read::Get(key(0))];
    let shown = (0..50).map(|_| {
        let mut answers = world.disk.read(&reads, 1);
        world.damage(FaultKind::WrongKeyRead, 0, &reads, &mut answers);
        let [Answer::Value(Some(value))] = &answers[..] else { panic!("a value is there") };
        value.bytes.clone()
    });
    let shown: BTreeSet<Vec<u8>> = shown.collect();
    assert_eq!(shown, BTreeSet::from([b"b", b"c", b"d"].map(|bytes| bytes.to_vec())));
}

#[test]
fn the_fault_table_names_the_excused_results() {
    let table = fault_table(&FaultTally::default());
    let excuses = |line: &&str| line.contains("the result of that one operation");
    let names: Vec<&str> =
        table.lines().filter(excuses).filter_map(|line| line.split('|').nth(1)).collect();
    assert_eq!(names, [" old-version "]);
}

#[test]
fn streams_of_other_names_numbers_and_seeds_differ() {
    let first = Stream::named(7, "luck", 1).draw();
    let others = [("luck", 2, 7), ("luck", 1, 8), ("latency", 1, 7)];
    for (name, number, seed) in others {
        assert_ne!(Stream::named(seed, name, number).draw(), first);
    }
    assert_ne!(
        Stream::named(7, "luck", 1).fork(1).draw(),
        Stream::named(7, "luck", 1).fork(2).draw()
    );
}

#[test]
fn a_fault_that_is_switched_off_leaves_the_dice_of_the_others() {
    let all = Dice::new(Place::Message, FaultSet::usual(), 4);
    for kind in FaultSet::usual().kinds().filter(|kind| kind.place() == Place::Message) {
        let without = Dice::new(Place::Message, FaultSet::usual().without(kind), 4);
        for draw in 0..0x1_0000 {
            let (before, after) = (all.roll(draw), without.roll(draw));
            assert_eq!(after, before.filter(|before| *before != kind));
        }
    }
}

#[test]
fn keys_are_in_byte_order_and_know_their_numbers() {
    let keys = Keyspace::new();
    for number in 0..KEYS_MAX {
        assert!(keys.key(number) < keys.key(number + 1));
        assert_eq!(keys.number(keys.key(number)), Some(number));
        assert_eq!(keys.number(&keys.key(number)[1..]), None);
    }
}

#[test]
fn a_list_of_faults_is_read_back_as_it_was_written() {
    for set in [FaultSet::NONE, FaultSet::usual(), FaultSet::NONE.with(FaultKind::Twin)] {
        assert_eq!(FaultSet::parse(&set.list()), Some(set));
    }
    assert_eq!(FaultSet::parse("drop,nonsense"), None);
    assert!(FaultKind::ALL.len() >= 25);
}

//! Every planted bug of the engine is found: the short form of `cargo xtask hall`.

use std::panic::catch_unwind;
use std::rc::Rc;

use gossip_coordination::mutants::{self, Guards, Hunter, Mutant, is_planted};
use rstest::rstest;

use crate::keyspace::Keyspace;
use crate::model::{Finding, Rule, Scale, Strictness, configuration, search};
use crate::world::World;
use crate::{FaultSet, Plan, Simulator, pair};

/// Worlds in which a bug must show.
const SEEDS: u64 = 30;

/// Worlds of certain faults alone; a bug that needs another fault shows in none of them.
const FEW_SEEDS: u64 = 8;

/// Operations of each.
const OPERATIONS: u64 = 2_500;

fn found_by_model(mutant: Mutant, strictness: Strictness) -> Option<Finding> {
    let Hunter::Model(name) = mutant.hunter() else { panic!("the simulator looks for it") };
    let config = configuration(name, Scale::Short).expect("a configuration of that name");
    mutants::with(mutant, Guards::Off, || search(config, strictness, usize::MAX)).finding
}

fn of_model() -> impl Iterator<Item = Mutant> {
    let searched = |mutant: &Mutant| matches!(mutant.hunter(), Hunter::Model(_));
    Mutant::ALL.iter().copied().filter(searched)
}

/// The rule by which the simulator finds it in worlds of these faults; absent if it does not.
fn found_by_simulator(mutant: Mutant, faults: Option<FaultSet>) -> Option<Rule> {
    let simulator = Simulator::new();
    let seeds = if faults.is_some() { FEW_SEEDS } else { SEEDS };
    (1..=seeds).find_map(|seed| {
        let usual = Plan::of_seed(seed, OPERATIONS, faults);
        let plan = Plan { binds: usual.binds || faults.is_some(), ..usual };
        let failure = mutants::with(mutant, Guards::Off, || simulator.play(&plan)).err()?;
        Some(failure.violation.rule)
    })
}

#[rstest]
#[case(Strictness::Records)]
#[case(Strictness::Effects)]
fn the_model_checker_finds_every_bug_it_is_to_find(#[case] strictness: Strictness) {
    let found = |mutant: &Mutant| found_by_model(*mutant, strictness).is_some();
    let hidden: Vec<Mutant> = of_model().filter(|mutant| !found(mutant)).collect();
    assert_eq!(hidden, []);
}

#[test]
fn the_simulator_finds_every_bug_it_is_to_find() {
    let found = |mutant: &Mutant| match mutant.hunter() {
        Hunter::Model(_) => true,
        Hunter::Simulator => found_by_simulator(*mutant, None).is_some(),
        Hunter::Faults(list) => {
            let faults = FaultSet::parse(list).expect("a list of faults");
            found_by_simulator(*mutant, Some(faults)).is_some()
        }
    };
    let hidden: Vec<&Mutant> = Mutant::ALL.iter().filter(|mutant| !found(mutant)).collect();
    assert_eq!(hidden, [] as [&Mutant; 0]);
}

/// What tells the two apart: one needs the owner's key to vanish, the other nothing.
#[rstest]
#[case(Mutant::HintForSafety, "early-revoke", Some(Rule::TwoOwners))]
#[case(Mutant::HintForSafety, "none", None)]
#[case(Mutant::StealsLiveLease, "none", Some(Rule::TwoOwners))]
fn a_hint_is_trusted_only_where_one_is_missing(
    #[case] mutant: Mutant,
    #[case] faults: &str,
    #[case] expected: Option<Rule>,
) {
    let faults = FaultSet::parse(faults).expect("a list of faults");
    assert_eq!(found_by_simulator(mutant, Some(faults)), expected);
}

#[rstest]
#[case(Mutant::CursorOutside, Rule::ProgressFell)]
#[case(Mutant::ReplayForgotten, Rule::Replay)]
#[case(Mutant::PausedShardAdopted, Rule::RunOver)]
#[case(Mutant::ResumesOnce, Rule::Acknowledged)]
#[case(Mutant::DoneIsUnparked, Rule::Acknowledged)]
#[case(Mutant::WorkersOfAllTenants, Rule::Acknowledged)]
#[case(Mutant::RequestAlwaysReplayed, Rule::Replay)]
#[case(Mutant::RequestAlwaysConflicts, Rule::Replay)]
#[case(Mutant::RequestMixedUp, Rule::Acknowledged)]
#[case(Mutant::RequestUnseen, Rule::Acknowledged)]
#[case(Mutant::ParkReasonMixedUp, Rule::Acknowledged)]
#[case(Mutant::MetadataLost, Rule::Acknowledged)]
#[case(Mutant::WorkerStateMixedUp, Rule::Acknowledged)]
#[case(Mutant::HalfDeletedForgotten, Rule::Acknowledged)]
#[case(Mutant::PageEndLost, Rule::Acknowledged)]
#[case(Mutant::PageBeginsAtLast, Rule::Acknowledged)]
#[case(Mutant::FilterIgnoresExpiry, Rule::Acknowledged)]
fn a_bug_breaks_the_rule_it_is_about_in_worlds(#[case] mutant: Mutant, #[case] rule: Rule) {
    assert_eq!(found_by_simulator(mutant, None), Some(rule));
}

/// The rule that finds a bug when only effects are looked at.
#[rstest]
#[case(Mutant::FenceIgnored, Rule::StaleFence)]
#[case(Mutant::ExpiryInclusive, Rule::Expired)]
#[case(Mutant::StealsLiveLease, Rule::TwoOwners)]
#[case(Mutant::ChildLost, Rule::Tiling)]
#[case(Mutant::LimitIgnored, Rule::Limit)]
#[case(Mutant::ReplayAfterLease, Rule::Replay)]
#[case(Mutant::CursorFalls, Rule::ProgressFell)]
#[case(Mutant::CursorReset, Rule::Acknowledged)]
#[case(Mutant::RenewalLost, Rule::OwnerShutOut)]
#[case(Mutant::FenceReusedAfterUnpark, Rule::FenceFell)]
#[case(Mutant::DoneIsGranted, Rule::StaleFence)]
#[case(Mutant::AcceptedByAnybody, Rule::Handoff)]
#[case(Mutant::SourceNotFrozen, Rule::FrozenSource)]
#[case(Mutant::LateOfferStands, Rule::MoveRedoesNothing)]
#[case(Mutant::DeadRunGrows, Rule::RunOver)]
#[case(Mutant::RunEndsUnsettled, Rule::RunUnsettled)]
#[case(Mutant::RunIdReused, Rule::RunReborn)]
#[case(Mutant::TenantUnchecked, Rule::Tenants)]
#[case(Mutant::RenewShortens, Rule::Acknowledged)]
#[case(Mutant::StaleSessionRenews, Rule::StaleFence)]
#[case(Mutant::StaleProgressWins, Rule::StaleFence)]
#[case(Mutant::RequestAlwaysReplayed, Rule::Replay)]
#[case(Mutant::RequestAlwaysConflicts, Rule::Replay)]
#[case(Mutant::RequestMixedUp, Rule::Acknowledged)]
#[case(Mutant::RequestUnseen, Rule::Acknowledged)]
fn a_bug_breaks_the_rule_it_is_about(#[case] mutant: Mutant, #[case] rule: Rule) {
    let finding = found_by_model(mutant, Strictness::Effects).expect("it is found");
    assert_eq!(finding.violation.rule, rule, "{}", finding.trace.join("\n"));
}

#[test]
fn a_bug_is_planted_for_one_call() {
    let (outer, inner) = (Mutant::FenceIgnored, Mutant::ChildLost);
    let panicked = catch_unwind(|| {
        mutants::with(outer, Guards::Off, || {
            assert!(mutants::with(inner, Guards::Off, || is_planted(inner) && !is_planted(outer)));
            assert!(is_planted(outer) && !is_planted(inner));
            panic!("as a search would");
        })
    });
    assert!(panicked.is_err() && !is_planted(outer));
}

#[test]
fn every_bug_has_a_name_and_a_story_of_its_own() {
    for (index, mutant) in Mutant::ALL.iter().enumerate() {
        let same = |other: &&Mutant| other.what() == mutant.what();
        assert_eq!(Mutant::ALL.iter().filter(same).count(), 1, "{}", mutant.name());
        assert!(mutant.what().ends_with('.') && !mutant.story().ends_with('.'), "{index}");
    }
    assert!(Mutant::ALL.len() >= 40);
}

#[test]
fn a_finding_tells_the_shortest_way_to_it() {
    let short = configuration("lease", Scale::Short).expect("a configuration of that name");
    let hunt = || search(short, Strictness::Records, usize::MAX);
    let report = mutants::with(Mutant::FenceIgnored, Guards::Off, hunt);
    let trace = report.finding.expect("it is found").trace;
    // One worker acquires and sends, its lease runs out, another acquires, the message arrives.
    assert_eq!(trace.len(), 6, "{}", trace.join("\n"));
    assert!(trace[5].contains("fence 2"), "{}", trace[5]);
}

/// The rule about lists is put away, so that what tells the two apart is the answers alone.
#[test]
fn a_list_that_shows_another_tenant_is_answered_otherwise_without_it() {
    let told = |plan: Plan| {
        let world = World::new(plan, Rc::new(Keyspace::new()), None);
        world.shared.borrow_mut().oracle.suspend(&[Rule::Acknowledged]);
        world.run().expect("no other rule is about it").tenant_hashes[0]
    };
    let apart = |seed| {
        let [both, alone] = pair(seed).map(told);
        both != alone
    };
    let leak = Mutant::WorkersOfAllTenants;
    assert!(mutants::with(leak, Guards::Off, || (1..=6).any(apart)));
    assert!(!(1..=6).any(apart), "without the leak nothing depends on the other");
}

/// Nothing is refused or answered wrongly by these: the work is just never done.
#[test]
fn a_bug_whose_only_symptom_is_that_nothing_ends_is_found() {
    for mutant in [Mutant::RetriedShardFails, Mutant::LongRunNeverEnds] {
        let mut plans = (1..=SEEDS).map(|seed| Plan::of_seed(seed, 600, None));
        let found = plans.find_map(|plan| {
            mutants::with(mutant, Guards::Off, || Simulator::new().play(&plan)).err()
        });
        let rule = found.map(|failure| failure.violation.rule);
        assert_eq!(rule, Some(Rule::NeverFinishes), "{mutant:?}");
    }
}

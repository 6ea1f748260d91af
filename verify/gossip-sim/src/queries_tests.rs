//! Listings with missing, additional or wrong entries, which the oracle must find.

use gossip_contracts::identity::{
    FenceEpoch, LogicalTime, RunId, ShardId, ShardKey, TenantId, WorkerId,
};
use gossip_coordination::{RunStatus, ShardFilter, ShardStatus, ShardSummary};
use rstest::rstest;

use super::op::Verb;
use super::oracle::{Rule, RunFacts};
use super::oracle_tests::{History, NOW, at, key, run};
use super::queries::RunPage;
use super::splits::metadata_of;

/// A tenant of six runs: 1 and 4 are unfinished, 2 is finished, 3 is deleted, 5 was never created,
/// and 6 was created during the listing.
fn tenant_of_six() -> History {
    let mut history = History::new();
    let made = |id, status| RunFacts { id: RunId::from_raw(id), status, ..run() };
    let over = Some(RunStatus::Done);
    let open = Some(RunStatus::Active);
    history.oracle.expect_run(made(2, over));
    history.oracle.expect_run(RunFacts { deleted: true, ..made(3, over) });
    history.oracle.expect_run(made(4, open));
    history.oracle.expect_run(made(5, None));
    history.oracle.expect_run(RunFacts { changed_at: 9, ..made(6, open) });
    history
}

const WRONG: Option<Rule> = Some(Rule::Acknowledged);

#[rstest]
#[case::all(Verb::ListRuns, 0, 9, &[1, 2, 4, 6], None)]
#[case::one_was_made_too_late(Verb::ListRuns, 0, 9, &[1, 2, 4], None)]
#[case::one_that_is_over_is_missing(Verb::ListRuns, 0, 9, &[1, 4, 6], WRONG)]
#[case::one_that_is_deleted_is_there(Verb::ListRuns, 0, 9, &[1, 2, 3, 4], WRONG)]
#[case::one_that_was_never_made_is_there(Verb::ListRuns, 0, 9, &[1, 2, 4, 5], WRONG)]
#[case::an_unknown_one(Verb::ListRuns, 0, 9, &[1, 2, 4, 7], WRONG)]
#[case::open_ones(Verb::ActiveRuns, 0, 9, &[1, 4], None)]
#[case::one_that_is_over_is_there(Verb::ActiveRuns, 0, 9, &[1, 2, 4], WRONG)]
#[case::a_page(Verb::ListRuns, 0, 2, &[1, 2], None)]
#[case::a_page_without_its_first(Verb::ListRuns, 0, 2, &[2, 4], WRONG)]
#[case::a_page_with_a_gap(Verb::ListRuns, 0, 2, &[1, 4], WRONG)]
#[case::a_page_without_its_last(Verb::ListRuns, 0, 2, &[1], WRONG)]
#[case::a_page_too_long(Verb::ListRuns, 0, 2, &[1, 2, 4], WRONG)]
#[case::behind_one(Verb::ListRuns, 2, 9, &[4, 6], None)]
#[case::behind_one_that_is_deleted(Verb::ListRuns, 3, 1, &[4], None)]
#[case::behind_one_that_comes_again(Verb::ListRuns, 2, 9, &[2, 4, 6], WRONG)]
#[case::behind_one_with_a_gap(Verb::ListRuns, 1, 9, &[4, 6], WRONG)]
#[case::behind_the_last(Verb::ListRuns, 6, 9, &[], None)]
#[case::not_in_order(Verb::ListRuns, 0, 9, &[2, 1, 4], WRONG)]
#[case::one_twice(Verb::ListRuns, 0, 9, &[1, 1, 2, 4], WRONG)]
fn a_page_lists_the_existing_runs(
    #[case] verb: Verb,
    #[case] after: u64,
    #[case] limit: usize,
    #[case] result: &[u64],
    #[case] expected: Option<Rule>,
) {
    let history = tenant_of_six();
    let result: Vec<RunId> = result.iter().copied().map(RunId::from_raw).collect();
    let after = (after > 0).then(|| RunId::from_raw(after));
    let op = at(NOW, verb);
    let verdict = history.oracle.check_listed_runs(&op, RunPage { after, limit }, &result);
    assert_eq!(verdict.err().map(|violation| violation.rule), expected);
    // An operation that read an old version may return it.
    op.misled.set(true);
    assert!(history.oracle.check_listed_runs(&op, RunPage { after, limit }, &result).is_ok());
}

/// Returns the rows of a run with two roots, of which the first is held, and of a completed child
/// of it.
pub(super) fn rows_of_three(history: &mut History) -> Vec<ShardSummary> {
    let child = ShardId::from_raw(1 << 63 | 7);
    let mut born = history.oracle.shards[1].clone();
    (born.key, born.range) = (ShardKey::new(run().id, child), (7, 10));
    (born.parent, born.status) = (Some(ShardId::from_raw(1)), ShardStatus::Done);
    history.oracle.add_shard(TenantId::from_bytes([1; 32]), born);
    history.oracle.shards[1].range.1 = 7;
    history.oracle.shards[1].spawned.push(child);
    history.oracle.runs[0].touched_at = 0;
    let held = (Some(WorkerId::from_raw(7)), Some(LogicalTime::from_raw(NOW + 100)));
    let unheld = (None, None);
    let known = [
        (key(0).shard(), ShardStatus::Active, held, (2, 1), (0, 5)),
        (key(1).shard(), ShardStatus::Active, unheld, (1, 0), (5, 7)),
        (child, ShardStatus::Done, unheld, (1, 0), (7, 10)),
    ];
    let keys = &history.oracle.keys;
    let row = |(shard, status, (owner, lease_deadline), (fence, granted), (start, end))| {
        let owner: Option<WorkerId> = owner;
        let parent = (shard == child).then(|| key(1).shard());
        ShardSummary {
            shard,
            damage: None,
            status,
            park_context: None,
            park_reason: None,
            leased: owner.is_some(),
            lease_deadline,
            owner,
            fence_epoch: FenceEpoch::from_raw(fence),
            last_handoff: None,
            acquire_count: granted,
            attempts: granted,
            last_key: None,
            token: None,
            start: keys.key(start).into(),
            end: keys.key(end).into(),
            metadata: metadata_of(run().id, start).into(),
            parent,
            spawned_count: u32::from(start == 5),
        }
    };
    known.map(row).into()
}

const ALL: ShardFilter = ShardFilter::all();
const LEASED: ShardFilter = ShardFilter { is_leased: Some(true), ..ALL };

#[rstest]
#[case::all(ALL, NOW, &[0, 1, 2], None)]
#[case::one_is_missing(ALL, NOW, &[0, 1], WRONG)]
#[case::not_in_order(ALL, NOW, &[0, 2, 1], WRONG)]
#[case::one_twice(ALL, NOW, &[0, 1, 1], WRONG)]
#[case::roots(ALL.roots(), NOW, &[0, 1], None)]
#[case::a_child_among_roots(ALL.roots(), NOW, &[0, 1, 2], WRONG)]
#[case::leased(LEASED, NOW, &[0], None)]
#[case::a_free_one_among_leased(LEASED, NOW, &[0, 1], WRONG)]
#[case::the_leased_one_is_missing(LEASED, NOW, &[], WRONG)]
#[case::not_leased_any_more(LEASED, NOW + 100, &[], None)]
#[case::available(ShardFilter::available(), NOW, &[1], None)]
#[case::one_that_is_done_is_available(ShardFilter::available(), NOW, &[1, 2], WRONG)]
#[case::parked(ShardFilter::parked(), NOW, &[], None)]
#[case::only_one(ShardFilter::one(ShardId::from_raw(1)), NOW, &[1], None)]
#[case::only_another(ShardFilter::one(ShardId::from_raw(1)), NOW, &[0], WRONG)]
#[case::only_an_unknown_one(ShardFilter::one(ShardId::from_raw(9)), NOW, &[], None)]
fn a_listing_has_the_shards_that_match_its_filter(
    #[case] filter: ShardFilter,
    #[case] now: u64,
    #[case] shown: &[usize],
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let rows = rows_of_three(&mut history);
    let mut op = at(now, Verb::ListShards);
    (op.run, op.begun_at) = (Some(0), 1);
    let result: Vec<_> = shown.iter().map(|place| rows[*place].clone()).collect();
    let verdict = history.oracle.check_listed_shards(&op, filter, &result);
    assert_eq!(verdict.err().map(|violation| violation.rule), expected);
}

#[rstest]
#[case(|row: &mut ShardSummary| row.status = ShardStatus::Done)]
#[case(|row: &mut ShardSummary| row.owner = Some(WorkerId::from_raw(8)))]
#[case(|row: &mut ShardSummary| row.lease_deadline = None)]
#[case(|row: &mut ShardSummary| row.fence_epoch = FenceEpoch::from_raw(9))]
#[case(|row: &mut ShardSummary| row.attempts = 0)]
#[case(|row: &mut ShardSummary| row.acquire_count = 9)]
#[case(|row: &mut ShardSummary| row.last_key = Some([1].into()))]
#[case(|row: &mut ShardSummary| row.token = Some([1].into()))]
#[case(|row: &mut ShardSummary| row.metadata = [1; 99].into())]
#[case(|row: &mut ShardSummary| row.parent = Some(ShardId::from_raw(9)))]
#[case(|row: &mut ShardSummary| row.spawned_count = 9)]
fn a_row_with_a_wrong_value_is_found(#[case] change: fn(&mut ShardSummary)) {
    let mut history = History::new();
    let mut rows = rows_of_three(&mut history);
    let mut op = at(NOW, Verb::ListShards);
    (op.run, op.begun_at) = (Some(0), 1);
    change(&mut rows[0]);
    let violation =
        history.oracle.check_listed_shards(&op, ALL, &rows).expect_err("a row is wrong");
    assert_eq!(violation.rule, Rule::Acknowledged);
}

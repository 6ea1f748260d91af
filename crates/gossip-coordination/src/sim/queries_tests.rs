//! Lists that tell too much, too little or something else, and the oracle that must say so.

use gossip_contracts::identity::RunId;
use rstest::rstest;

use super::op::Verb;
use super::oracle::{Rule, RunFacts};
use super::oracle_tests::{Book, NOW, at, run};
use super::queries::RunPage;
use crate::run::RunStatus;

/// A tenant of six runs: 1 and 4 are open, 2 is over, 3 is deleted, 5 was never made, and 6 was
/// made while somebody listed them.
fn tenant_of_six() -> Book {
    let mut book = Book::new();
    let made = |id, status| RunFacts { id: RunId::from_raw(id), status, ..run() };
    let over = Some(RunStatus::Done);
    let open = Some(RunStatus::Active);
    book.oracle.expect_run(made(2, over));
    book.oracle.expect_run(RunFacts { deleted: true, ..made(3, over) });
    book.oracle.expect_run(made(4, open));
    book.oracle.expect_run(made(5, None));
    book.oracle.expect_run(RunFacts { changed_at: 9, ..made(6, open) });
    book
}

const WRONG: Option<Rule> = Some(Rule::Acknowledged);

#[rstest]
#[case::all(Verb::ListRuns, 0, 9, &[1, 2, 4, 6], None)]
#[case::one_was_made_too_late(Verb::ListRuns, 0, 9, &[1, 2, 4], None)]
#[case::one_that_is_over_is_missing(Verb::ListRuns, 0, 9, &[1, 4, 6], WRONG)]
#[case::one_that_is_deleted_is_there(Verb::ListRuns, 0, 9, &[1, 2, 3, 4], WRONG)]
#[case::one_that_was_never_made_is_there(Verb::ListRuns, 0, 9, &[1, 2, 4, 5], WRONG)]
#[case::one_of_nobody(Verb::ListRuns, 0, 9, &[1, 2, 4, 7], WRONG)]
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
fn a_page_shows_the_runs_that_there_are(
    #[case] verb: Verb,
    #[case] after: u64,
    #[case] limit: usize,
    #[case] told: &[u64],
    #[case] expected: Option<Rule>,
) {
    let book = tenant_of_six();
    let told: Vec<RunId> = told.iter().copied().map(RunId::from_raw).collect();
    let after = (after > 0).then(|| RunId::from_raw(after));
    let op = at(NOW, verb);
    let verdict = book.oracle.told_runs(&op, RunPage { after, limit }, &told);
    assert_eq!(verdict.err().map(|violation| violation.rule), expected);
    // Who was shown an old version may tell of it.
    op.misled.set(true);
    assert!(book.oracle.told_runs(&op, RunPage { after, limit }, &told).is_ok());
}

//! Malformed input is rejected for its flaw and never accepted, and valid input is never rejected
//! that way.

use rstest::rstest;

use super::op::{Ending, Flaw, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, NOW, at};
use super::past::Past;

#[rstest]
#[case::no_key(Some(Flaw::NoKey), "CheckpointMissingKey", None)]
#[case::a_long_key(Some(Flaw::LongKey), "CursorKeyTooLarge", None)]
#[case::a_long_token(Some(Flaw::LongToken), "CursorTokenTooLarge", None)]
#[case::another_flaw(Some(Flaw::LongKey), "CursorTokenTooLarge", Some(Rule::Unfounded))]
#[case::no_flaw(None, "CheckpointMissingKey", Some(Rule::Unfounded))]
#[case::no_flaw_of_size(None, "CursorKeyTooLarge", Some(Rule::Unfounded))]
#[case::another_reason(Some(Flaw::LongKey), "CursorRegression", Some(Rule::Unfounded))]
fn only_a_malformed_cursor_is_rejected_as_malformed(
    #[case] flaw: Option<Flaw>,
    #[case] name: &str,
    #[case] expected: Option<Rule>,
) {
    for changed_at in [0, 9] {
        let mut history = History::new();
        let op = history.under(Verb::Checkpoint, |op| (op.said.flaw, op.said.to) = (flaw, Some(3)));
        // A change that the history does not explain: the states during the operation are unknown.
        history.oracle.shards[0].changed_at = changed_at;
        history.oracle.past_shards[0] = Past::default();
        let verdict = history.ended(&op, Ending::Refused, name);
        let found = verdict.err().map(|violation| violation.rule);
        // The flaw of the input does not depend on the state of the shard.
        let of_input = Flaw::is_named_by(name);
        assert_eq!(found, expected.filter(|_| of_input || changed_at == 0));
    }
}

#[rstest]
#[case::flawed(Some(Flaw::SameRoot), "ManifestInvalid", 0, None)]
#[case::good(None, "ManifestInvalid", 0, Some(Rule::Unfounded))]
#[case::flawed_and_others_have_begun(Some(Flaw::SameRoot), "WrongStatus", 1, None)]
#[case::flawed_and_none_has(Some(Flaw::SameRoot), "WrongStatus", 0, Some(Rule::Unfounded))]
#[case::good_and_it_has_begun(None, "WrongStatus", 1, Some(Rule::Unfounded))]
fn only_a_malformed_manifest_is_rejected_as_malformed(
    #[case] flaw: Option<Flaw>,
    #[case] name: &str,
    #[case] roots_born: u32,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let run = &mut history.oracle.runs[0];
    (run.status, run.roots_born) = (Some(gossip_coordination::RunStatus::Initializing), roots_born);
    let mut op = at(NOW, Verb::RegisterShards);
    op.run = Some(0);
    (op.said.flaw, op.said.cuts) = (flaw, run.cuts.clone());
    let verdict = history.ended(&op, Ending::Refused, name);
    assert_eq!(verdict.err().map(|violation| violation.rule), expected);
}

#[rstest]
#[case::of_a_checkpoint(Verb::Checkpoint)]
#[case::of_an_end(Verb::Complete)]
fn a_malformed_cursor_is_never_accepted(#[case] verb: Verb) {
    for flaw in Flaw::OF_CURSORS {
        let mut history = History::new();
        let op = history.under(verb, |op| (op.said.flaw, op.said.to) = (Some(flaw), Some(3)));
        let violation = history.applied(&op, 0).expect_err("no shard can have it");
        assert_eq!(violation.rule, Rule::ProgressFell);
        assert!(violation.why.contains("no shard can have"), "{violation:?}");
    }
}

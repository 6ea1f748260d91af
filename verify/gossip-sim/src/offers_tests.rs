//! Doctored histories of offers that an earlier attempt opened.

use rstest::rstest;

use super::op::{Ending, Op, Terms, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, NOW, rule};

const OFFER: Terms = Terms { handoff: 5, destination: 8, until: NOW + 50 };

/// A first attempt under another id may arrive late, while the second waits for a lost reply. The
/// open offer is then the requested one, and it cannot be determined which attempt opened it.
#[rstest]
#[case::open_and_may_be_its_own(Some(OFFER), true, None)]
#[case::open_and_not_its_own(Some(OFFER), false, Some(Rule::Acknowledged))]
#[case::no_offer(None, true, Some(Rule::Acknowledged))]
fn an_offer_may_be_opened_by_an_earlier_attempt(
    #[case] open: Option<Terms>,
    #[case] unsure: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let offer: Op =
        history.under(Verb::Offer, |op| (op.said.terms, op.begun_at) = (Some(OFFER), 1));
    offer.unsure.set(unsure);
    history.oracle.shards[0].offer = open;
    assert_eq!(rule(history.ended(&offer, Ending::Executed, "Executed")), expected);
}

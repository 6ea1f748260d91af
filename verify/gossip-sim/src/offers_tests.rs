//! Doctored histories about offers that an earlier try made.

use rstest::rstest;

use super::op::{Ending, Op, Terms, Verb};
use super::oracle::Rule;
use super::oracle_tests::{History, NOW, rule};

const OFFER: Terms = Terms { handoff: 5, destination: 8, until: NOW + 50 };

/// A first try under another id may arrive late, while the second waits for a reply that is lost.
/// What stands then is what was asked, and nobody can tell whose it is.
#[rstest]
#[case::it_stands_and_may_be_its_own(Some(OFFER), true, None)]
#[case::it_stands_and_is_not_its_own(Some(OFFER), false, Some(Rule::Acknowledged))]
#[case::nothing_stands(None, true, Some(Rule::Acknowledged))]
fn an_offer_may_stand_by_an_earlier_try_of_it(
    #[case] stands: Option<Terms>,
    #[case] unsure: bool,
    #[case] expected: Option<Rule>,
) {
    let mut history = History::new();
    let offer: Op =
        history.under(Verb::Offer, |op| (op.said.terms, op.begun_at) = (Some(OFFER), 1));
    offer.unsure.set(unsure);
    history.oracle.shards[0].offer = stands;
    assert_eq!(rule(history.ended(&offer, Ending::Executed, "Executed")), expected);
}

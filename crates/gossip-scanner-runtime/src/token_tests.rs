use gossip_contracts::connector::MAX_CONNECTOR_TOKEN_SIZE;
use gossip_contracts::coordination::MAX_TOKEN_SIZE;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::accumulator::{ACCUMULATOR_LEN, Accumulator, AccumulatorError};
use crate::token::*;

fn accumulator_of(keys: u64) -> Accumulator {
    let mut accumulator = Accumulator::EMPTY;
    (0..keys).for_each(|key| accumulator.add(&key.to_be_bytes()));
    accumulator
}

fn encoded(token: &RuntimeToken<'_>) -> Vec<u8> {
    let mut bytes = vec![0xEE; 3];
    token.encode_into(&mut bytes).unwrap();
    bytes
}

/// Pinned: cursors in stores hold such bytes.
#[test]
fn the_layout_is_pinned() {
    let token =
        RuntimeToken { accumulator: accumulator_of(3), unread: 2, found: 0, connector: b"conn" };
    let mut expected = vec![1];
    expected.extend_from_slice(&accumulator_of(3).to_bytes());
    expected.extend_from_slice(&[2, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(b"conn");
    assert_eq!(encoded(&token), expected);
    assert_eq!(RUNTIME_TOKEN_LEN, 49);
}

/// Pinned as well, and the only form of a token with findings.
#[test]
fn the_layout_with_findings_is_pinned() {
    let token = RuntimeToken { found: 5, ..RuntimeToken::new(accumulator_of(3), b"conn") };
    let mut expected = vec![2];
    expected.extend_from_slice(&accumulator_of(3).to_bytes());
    expected.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[5, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(b"conn");
    assert_eq!(encoded(&token), expected);
    assert_eq!(RuntimeToken::decode(&expected), Ok(token));
    let len = RUNTIME_TOKEN_LEN + 7;
    let refused = TokenError::TooShort { len, min: RUNTIME_TOKEN_LEN + 8 };
    assert_eq!(RuntimeToken::decode(&expected[..len]), Err(refused));
    expected[RUNTIME_TOKEN_LEN] = 0;
    assert_eq!(RuntimeToken::decode(&expected), Err(TokenError::NothingFound));
}

#[test]
fn the_longest_token_fits_in_a_cursor() {
    let connector = vec![7; MAX_CONNECTOR_TOKEN_SIZE];
    let token = RuntimeToken { found: 1, ..RuntimeToken::new(accumulator_of(1), &connector) };
    assert!(encoded(&token).len() <= MAX_TOKEN_SIZE);
    assert_eq!(RuntimeToken::decode(&encoded(&token)), Ok(token));
}

#[test]
fn a_connector_part_that_is_too_long_is_refused_both_ways() {
    let connector = vec![7; MAX_CONNECTOR_TOKEN_SIZE + 1];
    let token = RuntimeToken::new(accumulator_of(1), &connector);
    let (size, max) = (connector.len(), MAX_CONNECTOR_TOKEN_SIZE);
    let mut bytes = vec![1];
    let refused = Err(TokenError::ConnectorTooLong { size, max });
    assert_eq!(token.encode_into(&mut bytes), refused);
    assert!(bytes.is_empty());

    let mut bytes = encoded(&RuntimeToken::new(accumulator_of(1), b""));
    bytes.extend_from_slice(&connector);
    assert_eq!(RuntimeToken::decode(&bytes).map(drop), refused);
}

#[test]
fn short_tokens_are_refused() {
    let bytes = encoded(&RuntimeToken::new(accumulator_of(1), b""));
    for len in 0..bytes.len() {
        let refused = RuntimeToken::decode(&bytes[..len]);
        assert_eq!(refused, Err(TokenError::TooShort { len, min: RUNTIME_TOKEN_LEN }));
    }
}

#[test]
fn another_version_is_refused() {
    let mut bytes = encoded(&RuntimeToken::START);
    bytes[0] = 3;
    let refused = RuntimeToken::decode(&bytes);
    assert_eq!(refused, Err(TokenError::Version { version: 3, expected: 2 }));
}

#[test]
fn a_broken_accumulator_is_refused() {
    let mut bytes = encoded(&RuntimeToken::new(accumulator_of(1), b""));
    bytes[1..9].fill(0);
    let refused = RuntimeToken::decode(&bytes);
    assert_eq!(refused, Err(TokenError::Accumulator(AccumulatorError::SumOfNothing)));
}

#[test]
fn more_unread_than_there_are_is_refused() {
    let token =
        RuntimeToken { accumulator: accumulator_of(1), unread: 2, found: 0, connector: b"" };
    let refused = Err(TokenError::UnreadExceedsCount { unread: 2, count: 1 });
    assert_eq!(token.encode_into(&mut Vec::new()), refused);

    let mut bytes = encoded(&RuntimeToken { unread: 1, ..token });
    bytes[1 + ACCUMULATOR_LEN] = 2;
    assert_eq!(RuntimeToken::decode(&bytes).map(drop), refused);
}

#[test]
fn debug_shows_lengths_only() {
    let shown = format!("{:?}", RuntimeToken::new(accumulator_of(1), b"canary"));
    assert!(shown.contains("connector_len: 6"), "{shown}");
    assert!(!shown.contains("canary") && !shown.contains("99, 97"), "{shown}");
}

proptest! {
    #[test]
    fn tokens_read_back(
        keys in 0..20_u64,
        unread in 0..20_u64,
        found in prop_oneof![Just(0), any::<u64>()],
        own in vec(any::<u8>(), 0..40),
    ) {
        let unread = unread.min(keys);
        let accumulator = accumulator_of(keys);
        let token = RuntimeToken { accumulator, unread, found, connector: &own };
        let bytes = encoded(&token);
        prop_assert_eq!(RuntimeToken::decode(&bytes), Ok(token));
    }

    #[test]
    fn any_bytes_are_refused_or_written_back(bytes in vec(any::<u8>(), 0..80)) {
        if let Ok(token) = RuntimeToken::decode(&bytes) {
            prop_assert_eq!(encoded(&token), bytes);
        }
    }
}

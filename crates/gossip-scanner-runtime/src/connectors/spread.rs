//! Samples of sources that can compute any of their keys.

use gossip_contracts::connector::{Page, PageItem};

/// Fills an empty `sample` with keys at even distances among the `known` ones, which `key_at` gives
/// by index; marks it exhausted if it holds all `count` keys that there are.
pub(super) fn push_spread<const LEN: usize>(
    known: u64,
    count: u64,
    sample: &mut Page,
    key_at: impl Fn(u64) -> [u8; LEN],
) {
    let limits = sample.limits();
    // All keys have one length, so the number that fits is known before the first is pushed, and
    // the last part of the range is not left out.
    let wanted = known.min(limits.items().min(limits.bytes() / LEN) as u64);
    for slot in 0..wanted {
        let index = u128::from(slot) * u128::from(known) / u128::from(wanted);
        let index =
            u64::try_from(index).expect("a slot is below `wanted`, so this is below `known`");
        let pushed = sample.push(PageItem::new(&key_at(index)));
        debug_assert!(pushed.is_ok(), "the sample was empty and the wanted keys fit");
    }
    if wanted == count {
        sample.mark_exhausted();
    }
}

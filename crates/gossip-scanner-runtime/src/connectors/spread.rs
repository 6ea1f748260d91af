//! Samples of sources that can compute any of their keys.

use gossip_contracts::connector::{Page, PageItem};

/// Fills an empty `sample` with keys at even distances among the `known` ones, which `key_at` gives
/// by index; marks it exhausted if it holds all `count` keys that there are.
pub(super) fn push_spread<const LEN: usize>(
    known: u128,
    count: u128,
    sample: &mut Page,
    key_at: impl Fn(u128) -> [u8; LEN],
) {
    let limits = sample.limits();
    // All keys have one length, so it is known how many fit.
    let wanted = known.min(limits.items().min(limits.bytes() / LEN) as u128);
    for slot in 0..wanted {
        // At most 2¹² slots of at most 2⁶⁴ keys: the product has room.
        let pushed = sample.push(PageItem::new(&key_at(slot * known / wanted)));
        debug_assert!(pushed.is_ok(), "the sample was empty and the wanted keys fit");
    }
    if wanted == count {
        sample.mark_exhausted();
    }
}

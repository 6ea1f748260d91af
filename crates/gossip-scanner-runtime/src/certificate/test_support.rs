//! A certificate over forty keys, in five leaves of which one is parked.

use gossip_contracts::connector::MemoryConnector;
use gossip_contracts::identity::{FenceEpoch, RunId};

use super::*;
use crate::accumulator::Accumulator;

/// Where the leaves are cut. The keys are `k00` to `k39`.
pub(super) const CUTS: [&str; 6] = ["a", "k08", "k16", "k24", "k32", "z"];

pub(super) fn key(number: usize) -> Vec<u8> {
    format!("k{number:02}").into_bytes()
}

pub(super) fn source() -> MemoryConnector {
    MemoryConnector::try_new((0..40).map(|number| (key(number), vec![]))).unwrap()
}

pub(super) fn request() -> Request {
    let mut request = Request::for_range(RunId::from_raw(0xa1), "memory:40 keys", b"a", b"z");
    request.options.push(("ignore".to_owned(), false));
    request.excluded.push("nothing, \"really\"".to_owned());
    request.command = vec![b"wc".to_vec(), b"\xFF{}".to_vec()];
    request.settings.push(("batch".to_owned(), "64".to_owned()));
    request
}

pub(super) fn accumulator(keys: impl IntoIterator<Item = usize>) -> Accumulator {
    let mut accumulator = Accumulator::EMPTY;
    keys.into_iter().for_each(|number| accumulator.add(&key(number)));
    accumulator
}

/// Five leaves of eight keys; the fourth is parked after its third key.
pub(super) fn leaves() -> Vec<LeafRecord> {
    let leaf =
        |index: usize| {
            let (start, end) = (CUTS[index].as_bytes(), CUTS[index + 1].as_bytes());
            let parked = index == 3;
            let status = match parked {
                true => LeafStatus::Parked(ParkedFor::Poisoned),
                false => LeafStatus::Done,
            };
            let first = 8 * index;
            let last = if parked { first + 2 } else { first + 7 };
            LeafRecord::new(start, end, status, FenceEpoch::from_raw(index as u64 + 1))
                .with_progress(&key(last), accumulator(first..=last), u64::from(index == 1))
        };
    (0..5).map(leaf).collect()
}

/// The same run if nothing had been parked and everything read.
pub(super) fn complete_leaves() -> Vec<LeafRecord> {
    let mut leaves = leaves();
    leaves[1].unread = 0;
    leaves[3].status = LeafStatus::Done;
    leaves[3].cursor = Some(key(31));
    leaves[3].accumulator = accumulator(24..32);
    leaves
}

pub(super) fn written(
    request: &Request,
    leaves: &[LeafRecord],
    key: Option<&SigningKey>,
) -> Vec<u8> {
    let mut writer = CertificateWriter::new(Vec::new(), request).unwrap();
    leaves.iter().for_each(|leaf| writer.leaf(leaf).unwrap());
    writer.finish(key).unwrap()
}

pub(super) fn signing_key(letter: u8) -> SigningKey {
    SigningKey::try_new(&[letter; 32]).unwrap()
}

pub(super) fn text(certificate: &[u8]) -> String {
    String::from_utf8(certificate.to_vec()).unwrap()
}

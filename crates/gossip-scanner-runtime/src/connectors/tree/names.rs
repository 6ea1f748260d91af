//! The names of one directory, in the order of their keys.
//!
//! The name of a directory has a `/` behind it, which puts it in its place among the others. Names
//! lie one after another in one block, with their ends in a second one, so a listing of a million
//! names takes two allocations and is read from front to back.

use gossip_contracts::connector::ConnectorError;

/// Sorted names, each once.
#[derive(Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// Where each name ends; they never decrease.
    ends: Vec<u32>,
    is_cut_short: bool,
}

impl Names {
    /// Returns the name at `index`.
    pub(super) fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        Some(&self.bytes[start..end])
    }

    /// Returns how many names come before the first for which `is_before` is false.
    pub(super) fn partition_point(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (0, self.ends.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).is_some_and(&is_before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns whether some were left out because there were too many.
    pub(super) const fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Returns the bytes of memory that the names take.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.ends.len() * size_of::<u32>()
    }
}

/// Names in the order in which the system returns them.
#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// How many bytes all names have in common at their beginning.
    common_len: usize,
    is_cut_short: bool,
}

#[derive(Clone, Copy)]
struct Span {
    /// The bytes behind the common ones, as a number; zeros behind a shorter name. Most comparisons
    /// need no more.
    head: u64,
    start: u32,
    len: u32,
}

/// How many bytes a head has.
const HEAD_LEN: usize = size_of::<u64>();

impl Gathered {
    /// Adds a name.
    ///
    /// # Errors
    ///
    /// The names together have 4 GiB.
    pub(super) fn push(&mut self, name: &[u8], is_directory: bool) -> Result<(), ConnectorError> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(name);
        if is_directory {
            self.bytes.push(b'/');
        }
        let position = self.bytes.len();
        let too_long = |_| ConnectorError::Malformed { position: position as u64 };
        u32::try_from(position).map_err(too_long)?;
        let span = Span { head: 0, start: start as u32, len: (position - start) as u32 };
        match self.spans.first() {
            None => self.common_len = position,
            Some(first) => {
                let first = &self.bytes[first.start as usize..][..self.common_len];
                let pairs = first.iter().zip(&self.bytes[start..]);
                self.common_len = pairs.take_while(|(a, b)| a == b).count();
            }
        }
        self.spans.push(span);
        Ok(())
    }

    /// Drops the last name, unless it is wanted.
    pub(super) fn pop_unless(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        if let Some(last) = self.spans.pop_if(|span| !is_wanted(name(&self.bytes, *span))) {
            self.bytes.truncate(last.start as usize);
        }
    }

    /// Drops the names that are not wanted.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&[u8]) -> bool) {
        let all = std::mem::take(self);
        let (mut bytes, mut spans) = (Vec::new(), Vec::new());
        for span in all.spans.into_iter().filter(|span| is_wanted(name(&all.bytes, *span))) {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(name(&all.bytes, span));
            spans.push(Span { start, ..span });
        }
        // What all names have in common, some of them have in common too.
        *self = Self { bytes, spans, ..all };
    }

    /// Notes that further names are left out.
    pub(super) const fn cut_short(&mut self) {
        self.is_cut_short = true;
    }

    /// Returns the bytes of memory that the names take when they are sorted.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<u32>()
    }

    /// Puts the names in order.
    pub(super) fn sort(self) -> Names {
        let Self { bytes, mut spans, common_len, is_cut_short } = self;
        // Names of one directory often begin alike (`img_2024`), and a head that they have in
        // common would distinguish none of them.
        for span in &mut spans {
            span.head = head_of(&name(&bytes, *span)[common_len..]);
        }
        spans.sort_unstable_by(|a, b| {
            a.head.cmp(&b.head).then_with(|| name(&bytes, *a).cmp(name(&bytes, *b)))
        });
        // A directory that changes while it is read may return a name twice.
        spans.dedup_by(|a, b| a.head == b.head && name(&bytes, *a) == name(&bytes, *b));
        let mut sorted = Vec::with_capacity(bytes.len());
        let mut ends = Vec::with_capacity(spans.len());
        for span in spans {
            sorted.extend_from_slice(name(&bytes, span));
            ends.push(sorted.len() as u32);
        }
        Names { bytes: sorted, ends, is_cut_short }
    }
}

fn name(bytes: &[u8], span: Span) -> &[u8] {
    &bytes[span.start as usize..][..span.len as usize]
}

/// Returns the first bytes as a number that compares like them. A name contains no zero.
fn head_of(rest: &[u8]) -> u64 {
    let mut head = [0; HEAD_LEN];
    let len = rest.len().min(HEAD_LEN);
    head[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(head)
}

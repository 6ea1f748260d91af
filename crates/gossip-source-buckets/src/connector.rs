//! The connector: pages, samples and bodies.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use gossip_contracts::connector::{
    Capabilities, Connector, ConnectorError, Enumeration, ItemBody, OpenError, Page, PageItem,
    SeekCost,
};
use gossip_contracts::coordination::{CursorUpdate, ShardSpecRef};
use gossip_frontier::{text_at_or_above, utf8_at_or_above};

use crate::list::{NoPage, Object, PAGE_KEYS};
use crate::object::{Body, Driver, Opened};
use crate::place::KEY_LEN_MAX;
use crate::request::Client;

/// Requests of one sample besides its first page.
const PROBES: usize = 64;
/// Requests of a sample that wait at the same time.
const PROBES_AT_ONCE: usize = 8;

/// The bytes of a token that say whose it is.
const TOKEN_HASH_LEN: usize = 16;

/// The objects of a bucket with a prefix.
pub(crate) struct BucketConnector {
    client: Arc<Client>,
    driver: Arc<Driver>,
}

impl BucketConnector {
    pub(crate) const fn new(client: Arc<Client>, driver: Arc<Driver>) -> Self {
        Self { client, driver }
    }

    fn unavailable() -> ConnectorError {
        ConnectorError::Unavailable { kind: io::ErrorKind::BrokenPipe }
    }
}

impl Connector for BucketConnector {
    fn capabilities(&self) -> Capabilities {
        Capabilities::NONE.with_sizes().with_samples().with_seek(SeekCost::Direct)
    }

    fn enumerate(
        &self,
        range: ShardSpecRef<'_>,
        from: CursorUpdate<'_>,
    ) -> Result<Box<dyn Enumeration>, ConnectorError> {
        let span = Span::of(&self.client.place.prefix, range, from);
        Ok(Box::new(Objects {
            client: Arc::clone(&self.client),
            driver: Arc::clone(&self.driver),
            end: range.end.to_vec(),
            objects: Vec::new(),
            next: 0,
            ended: span.is_none(),
            ahead: span.map(|span| start(&self.client, &self.driver, span)),
        }))
    }

    fn open<'a>(
        &'a self,
        item: PageItem<'_>,
        scratch: &'a mut Vec<u8>,
    ) -> Result<ItemBody<'a>, OpenError> {
        let key = item.key();
        self.check(item, None, scratch)?;
        let listed = item.token().and_then(|token| etag_of(token, key));
        let (client, key) = (Arc::clone(&self.client), key.to_vec());
        let opened = self.driver.run(async move { client.open(key, listed).await });
        match opened.ok_or_else(Self::unavailable)?? {
            Opened::Whole(body) => {
                *scratch = body;
                Ok(ItemBody::Bytes(scratch))
            }
            Opened::Stream(stream) => {
                let (client, driver) = (Arc::clone(&self.client), Arc::clone(&self.driver));
                Ok(ItemBody::Reader(Box::new(Body::new(stream, client, driver))))
            }
        }
    }

    /// Checks the name only: a command gets the key, and opens the object itself or not at all.
    fn check(
        &self,
        item: PageItem<'_>,
        _beside: Option<PageItem<'_>>,
        _scratch: &mut Vec<u8>,
    ) -> Result<(), OpenError> {
        let key = item.key();
        let is_key = (1..=KEY_LEN_MAX).contains(&key.len());
        if !is_key || !key.starts_with(&self.client.place.prefix) {
            return Err(OpenError::Vanished);
        }
        // No argument of a command and few URLs can contain it. With its token it was listed.
        if key.contains(&0) {
            let is_listed = item.token().is_some_and(|token| etag_of(token, key).is_some());
            return Err(if is_listed { OpenError::Unaddressable } else { OpenError::Vanished });
        }
        // Programs between here and the object may resolve such a segment, also if it is encoded:
        // what they then return is another object.
        let is_dots = |segment: &[u8]| segment == b"." || segment == b"..";
        match key.split(|byte| *byte == b'/').any(is_dots) {
            true => Err(OpenError::Unaddressable),
            false => Ok(()),
        }
    }

    fn sample_keys(
        &self,
        range: ShardSpecRef<'_>,
        sample: &mut Page,
    ) -> Result<(), ConnectorError> {
        let Some(span) = Span::of(&self.client.place.prefix, range, CursorUpdate::initial()) else {
            sample.mark_exhausted();
            return Ok(());
        };
        let (client, end) = (Arc::clone(&self.client), range.end.to_vec());
        let keys = self.driver.run(async move { sampled(client, span, end).await });
        let (keys, are_all) = keys.ok_or_else(Self::unavailable)?.map_err(NoPage::into_error)?;
        let limits = sample.limits();
        let longest = keys.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let wanted = keys.len().min(limits.items()).min(limits.bytes() / longest);
        for slot in 0..wanted {
            let pushed = sample.push(PageItem::new(&keys[slot * keys.len() / wanted]));
            debug_assert!(pushed.is_ok(), "the sample was empty and the wanted keys fit");
        }
        if are_all && wanted == keys.len() {
            sample.mark_exhausted();
        }
        Ok(())
    }
}

/// Where a listing begins.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    /// Keys at or below are not listed; empty for none.
    after: Vec<u8>,
    /// Whether a key that is equal to `after` is listed all the same.
    includes_it: bool,
}

impl Span {
    /// Returns where the listing of a range begins; `None` if no key can be in it.
    ///
    /// A server lists keys *above* a text; ranges include their start, which need not be a text.
    fn of(prefix: &[u8], range: ShardSpecRef<'_>, from: CursorUpdate<'_>) -> Option<Self> {
        let (bound, is_after) = match from.last_key() {
            Some(key) if key >= range.start => (key, true),
            Some(_) | None => (range.start, false),
        };
        let is_empty = !range.end.is_empty() && bound >= range.end;
        // No key is below a single zero byte, with which the range of a whole source begins, and
        // servers refuse that byte. Every key is above a proper beginning of the prefix, too.
        let is_start = prefix.is_empty() && !is_after && bound <= &[0][..];
        if is_start || bound < prefix || bound == prefix && !is_after {
            let is_empty = is_empty || !range.end.is_empty() && range.end <= prefix;
            return (!is_empty).then(|| Self { after: Vec::new(), includes_it: false });
        }
        let text = utf8_at_or_above(bound).filter(|_| !is_empty)?.into_bytes();
        // Above every key with the prefix.
        if !text.starts_with(prefix) {
            return None;
        }
        // Not the bound itself: the first text above it, which may be a key.
        let includes_it = !is_after || text != bound;
        // No key is longer, so the first one above the whole text is the first above its beginning
        // that is not below it; those between are left out when they are listed.
        Some(Self { after: text, includes_it })
    }
}

/// A page on its way.
type Pending = Receiver<Result<(Vec<Object>, bool), NoPage>>;

fn start(client: &Arc<Client>, driver: &Driver, span: Span) -> Pending {
    let (sender, receiver) = sync_channel(1);
    let client = Arc::clone(client);
    driver.spawn(async move {
        // A listing that was dropped needs no page.
        drop(sender.send(page_of(&client, &span).await));
    });
    receiver
}

/// Returns the objects of a page, and whether more follow.
async fn page_of(client: &Client, span: &Span) -> Result<(Vec<Object>, bool), NoPage> {
    let prefix = &client.place.prefix;
    // No key is longer than the limit.
    let first = match span.includes_it && span.after.len() <= KEY_LEN_MAX {
        true => client.find(&span.after).await?,
        false => None,
    };
    let after = within_limit(&span.after);
    let mut page = client.list(prefix, after, PAGE_KEYS).await?;
    // Only behind a text that was cut to the longest key there are others.
    page.objects.retain(|object| object.key > span.after);
    page.objects.splice(..0, first);
    Ok((page.objects, page.is_truncated))
}

/// Returns the longest beginning of a text that servers accept as a key.
fn within_limit(text: &[u8]) -> &[u8] {
    if text.len() <= KEY_LEN_MAX {
        return text;
    }
    let cut = &text[..KEY_LEN_MAX];
    match std::str::from_utf8(cut) {
        Ok(_) => cut,
        Err(error) => &cut[..error.valid_up_to()],
    }
}

struct Objects {
    client: Arc<Client>,
    driver: Arc<Driver>,
    /// Keys at or above are not listed, unless it is empty.
    end: Vec<u8>,
    objects: Vec<Object>,
    /// The next one of them.
    next: usize,
    /// Whether nothing follows them.
    ended: bool,
    ahead: Option<Pending>,
}

impl Objects {
    /// Replaces the objects by those that follow, and requests the next ones.
    fn advance(&mut self) -> Result<(), ConnectorError> {
        let pending = self.ahead.take().ok_or_else(BucketConnector::unavailable)?;
        let page = pending.recv().map_err(|_| BucketConnector::unavailable())?;
        let (mut objects, is_truncated) = page.map_err(NoPage::into_error)?;
        let inside = objects.partition_point(|object| self.end.is_empty() || object.key < self.end);
        let reaches_end = inside < objects.len();
        objects.truncate(inside);
        self.ended = reaches_end || !is_truncated;
        if let Some(last) = objects.last().filter(|_| !self.ended) {
            let span = Span { after: last.key.clone(), includes_it: false };
            self.ahead = Some(start(&self.client, &self.driver, span));
        }
        (self.objects, self.next) = (objects, 0);
        Ok(())
    }
}

impl Enumeration for Objects {
    fn next_page(&mut self, page: &mut Page) -> Result<(), ConnectorError> {
        loop {
            while let Some(object) = self.objects.get(self.next) {
                let token = token_of(object);
                let item = PageItem::new(&object.key).with_token(&token);
                // Full or faulty, the answer is the same: `next` still names the object.
                if page.push(item.with_size_hint(object.size)).is_err() {
                    return Ok(());
                }
                self.next += 1;
            }
            if self.ended {
                page.mark_exhausted();
                return Ok(());
            }
            self.advance()?;
        }
    }
}

/// Returns the token of an object: whose it is, and its ETag.
fn token_of(object: &Object) -> Vec<u8> {
    let hash = blake3::hash(&object.key);
    [&hash.as_bytes()[..TOKEN_HASH_LEN], object.etag.as_bytes()].concat()
}

/// Returns the ETag of a token that belongs to a key.
fn etag_of(token: &[u8], key: &[u8]) -> Option<String> {
    let (hash, etag) = token.split_at_checked(TOKEN_HASH_LEN)?;
    let is_its = *hash == blake3::hash(key).as_bytes()[..TOKEN_HASH_LEN];
    // Outside of quotes it could be anything, also `*`, which matches every version.
    let is_etag = etag.starts_with(b"\"") && etag.iter().all(u8::is_ascii_graphic);
    let etag = std::str::from_utf8(etag).ok()?;
    (is_its && is_etag).then(|| etag.to_owned())
}

/// Returns keys that are spread over a part of the bucket, ascending, and whether these are all.
async fn sampled(
    client: Arc<Client>,
    span: Span,
    end: Vec<u8>,
) -> Result<(Vec<Vec<u8>>, bool), NoPage> {
    let (objects, is_truncated) = page_of(&client, &span).await?;
    let mut keys: Vec<Vec<u8>> = objects.into_iter().map(|object| object.key).collect();
    let inside = keys.partition_point(|key| end.is_empty() || *key < end);
    let reaches_end = inside < keys.len();
    keys.truncate(inside);
    let Some(first) = keys.first().cloned() else { return Ok((keys, true)) };
    if reaches_end || !is_truncated {
        return Ok((keys, true));
    }
    let mut probes = Probes { client, end, left: PROBES, found: vec![first.clone()] };
    let common = probes.common_len(&first).await?;
    probes.spread(&first, common).await?;
    let mut found = probes.found;
    found.sort_unstable();
    found.dedup();
    Ok((found, false))
}

/// Searches for keys by "the first key above a text".
struct Probes {
    client: Arc<Client>,
    end: Vec<u8>,
    left: usize,
    found: Vec<Vec<u8>>,
}

impl Probes {
    /// Returns the first key above each text, as far as requests are left.
    async fn first_above(&mut self, texts: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, NoPage> {
        let requests = texts.iter().take(self.left).map(|text| {
            let (client, text) = (Arc::clone(&self.client), text.clone());
            tokio::spawn(
                async move { client.list(&client.place.prefix, within_limit(&text), 1).await },
            )
        });
        let requests: Vec<_> = requests.collect();
        self.left -= requests.len();
        let mut answers = Vec::with_capacity(requests.len());
        for request in requests {
            let Ok(page) = request.await else { return Ok(answers) };
            let key = page?.objects.into_iter().next().map(|object| object.key);
            let key = key.filter(|key| self.end.is_empty() || *key < self.end);
            self.found.extend(key.clone());
            answers.push(key);
        }
        Ok(answers)
    }

    /// Returns with how many bytes of the first key all others begin.
    async fn common_len(&mut self, first: &[u8]) -> Result<usize, NoPage> {
        // With a longer beginning there are more keys behind it, so it is found by halving.
        let (mut low, mut high) = (self.client.place.prefix.len().min(first.len()), first.len());
        while low < high {
            let middle = (low + high).div_ceil(2);
            let behind = match behind_prefix(&first[..middle]) {
                Some(behind) => self.first_above(&[behind]).await?,
                None => vec![None],
            };
            match behind.first() {
                Some(None) => low = middle,
                Some(Some(_)) => high = middle - 1,
                None => break,
            }
        }
        Ok(low)
    }

    /// Halves the widest gaps between keys that are known.
    async fn spread(&mut self, first: &[u8], common: usize) -> Result<(), NoPage> {
        let number = |key: &[u8]| number_at(key, common);
        let bound = if self.end.len() > common && self.end[..common] == first[..common] {
            number(&self.end)
        } else {
            u64::MAX
        };
        let mut gaps = vec![(number(first), bound)];
        while self.left > 0 && !gaps.is_empty() {
            gaps.sort_unstable_by_key(|(low, high)| std::cmp::Reverse(high - low));
            let mut chosen: Vec<_> = gaps.drain(..gaps.len().min(PROBES_AT_ONCE)).collect();
            chosen.retain(|(low, high)| middle_text(&first[..common], *low, *high).is_some());
            let texts =
                chosen.iter().filter_map(|(low, high)| middle_text(&first[..common], *low, *high));
            let texts: Vec<_> = texts.collect();
            let answers = self.first_above(&texts).await?;
            for (((low, high), text), answer) in chosen.into_iter().zip(&texts).zip(answers) {
                gaps.push((low, number(text)));
                // What lies between the text and the key behind it is known to be empty.
                let behind = answer.map_or(high, |key| number(&key).max(number(text)));
                gaps.push((behind, high));
            }
            gaps.retain(|(low, high)| high.saturating_sub(*low) > 1);
        }
        Ok(())
    }
}

/// Returns the eight bytes behind a common beginning.
fn number_at(key: &[u8], common: usize) -> u64 {
    let rest = key.get(common..).unwrap_or_default();
    let (mut raw, len) = ([0; 8], rest.len().min(8));
    raw[..len].copy_from_slice(&rest[..len]);
    u64::from_be_bytes(raw)
}

/// Returns a short text between two numbers behind a common beginning, if there is one.
///
/// It has no control bytes, which some servers do not accept, and no `%`, which some decode twice.
fn middle_text(common: &[u8], low: u64, high: u64) -> Option<Vec<u8>> {
    let middle = low.midpoint(high).to_be_bytes();
    for len in 1..=middle.len() {
        let mut text = [common, &middle[..len]].concat();
        for byte in &mut text[common.len()..] {
            *byte = match *byte {
                0..=0x20 => 0x21,
                b'%' => b'&',
                0x7F => b'~',
                other => other,
            };
        }
        let text = text_at_or_above(&text)?.into_bytes();
        let at = number_at(&text, common.len());
        if text.starts_with(common) && low < at && at < high {
            return Some(text);
        }
    }
    None
}

/// Returns the first text behind all texts with this beginning.
fn behind_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|byte| *byte < 0xFF)?;
    let mut behind = prefix[..=end].to_vec();
    behind[end] += 1;
    text_at_or_above(&behind).map(String::into_bytes)
}

#[cfg(test)]
#[path = "connector_tests.rs"]
mod tests;

//! Pages of ListObjectsV2: requested, parsed, and checked.

use gossip_contracts::connector::{ConnectorError, ListingProblem};

use crate::encode::decode;
use crate::place::KEY_LEN_MAX;
use crate::request::{Client, Failure, Target};
use crate::xml::{Event, Malformed, Reader};

/// The keys of a page: servers list no more at once.
pub(crate) const PAGE_KEYS: usize = 1000;

/// The longest page: a thousand keys, each byte of them as `%XX`, with everything else about them.
const PAGE_LEN_MAX: usize = 16 << 20;

/// The longest ETag: hashes are far shorter.
const ETAG_LEN_MAX: usize = 256;

/// One listed object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) key: Vec<u8>,
    /// With its quotes, as it is sent back.
    pub(crate) etag: String,
    pub(crate) size: u64,
}

/// One page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) objects: Vec<Object>,
    pub(crate) is_truncated: bool,
}

/// Why there is no page.
pub(crate) enum NoPage {
    Failed(Failure),
    /// It breaks the promise of the protocol.
    Broken(ListingProblem),
}

impl NoPage {
    pub(crate) fn into_error(self) -> ConnectorError {
        match self {
            Self::Failed(failure) => failure.into_error(),
            Self::Broken(problem) => ConnectorError::Listing { problem },
        }
    }
}

impl From<Failure> for NoPage {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Client {
    /// Lists objects with a prefix and keys above `after`.
    pub(crate) async fn list(
        &self,
        prefix: &[u8],
        after: &[u8],
        max_keys: usize,
    ) -> Result<Page, NoPage> {
        let mut query = vec![
            ("encoding-type", b"url".to_vec()),
            ("list-type", b"2".to_vec()),
            ("max-keys", max_keys.to_string().into_bytes()),
            ("prefix", prefix.to_vec()),
        ];
        if !after.is_empty() {
            query.push(("start-after", after.to_vec()));
        }
        let target = Target { query, ..Target::default() };
        // A body that breaks off is requested again, as a page of its own.
        let mut body = self.get(&target).await?.whole(PAGE_LEN_MAX).await;
        if body.is_err() {
            body = self.get(&target).await?.whole(PAGE_LEN_MAX).await;
        }
        let body = body.map_err(|error| Failure::Io(error.kind()))?;
        let text = std::str::from_utf8(&body).map_err(|_| Failure::Malformed)?;
        let page = parse(text).map_err(|Malformed| Failure::Malformed)?;
        check(&page, prefix, after).map_err(NoPage::Broken)?;
        Ok(page)
    }

    /// Returns the object with this key, if it is listed.
    pub(crate) async fn find(&self, key: &[u8]) -> Result<Option<Object>, NoPage> {
        // The first key with a prefix is the prefix, if that is a key.
        let page = self.list(key, b"", 1).await?;
        Ok(page.objects.into_iter().next().filter(|object| object.key == key))
    }
}

/// Checks what the protocol promises of a page: without it keys would be repeated or skipped.
fn check(page: &Page, prefix: &[u8], after: &[u8]) -> Result<(), ListingProblem> {
    let mut last = after;
    for (index, object) in page.objects.iter().enumerate() {
        // The first place is empty, and no key is.
        if *object.key <= *last {
            return Err(match index {
                0 => ListingProblem::Repeated,
                _ => ListingProblem::Unordered,
            });
        }
        if !object.key.starts_with(prefix) {
            return Err(ListingProblem::Foreign);
        }
        last = &object.key;
    }
    if page.is_truncated && page.objects.is_empty() {
        return Err(ListingProblem::Stuck);
    }
    Ok(())
}

/// Parses the body of a page.
fn parse(text: &str) -> Result<Page, Malformed> {
    let mut reader = Reader::new(text);
    // Skips what precedes the root.
    loop {
        match reader.next()?.ok_or(Malformed)? {
            Event::Start("ListBucketResult") => break,
            Event::Text(text) if text.trim().is_empty() => {}
            Event::Start(_) | Event::End(_) | Event::Text(_) => return Err(Malformed),
        }
    }
    let (mut listed, mut is_encoded, mut is_truncated) = (Vec::new(), false, None);
    loop {
        match reader.next()?.ok_or(Malformed)? {
            Event::Start("Contents") => listed.push(contents(&mut reader)?),
            Event::Start("EncodingType") => is_encoded = reader.text_of("EncodingType")? == "url",
            Event::Start("IsTruncated") => {
                is_truncated = Some(match &*reader.text_of("IsTruncated")? {
                    "true" => true,
                    "false" => false,
                    _ => return Err(Malformed),
                });
            }
            Event::Start(_) => reader.skip()?,
            Event::End("ListBucketResult") => break,
            Event::End(_) => return Err(Malformed),
            Event::Text(_) => {}
        }
    }
    let mut objects = Vec::with_capacity(listed.len());
    for (key, etag, size) in listed {
        let key = if is_encoded { decode(&key).ok_or(Malformed)? } else { key.into_bytes() };
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err(Malformed);
        }
        objects.push(Object { key, etag, size });
    }
    // A page that does not say whether it is the last may be anywhere.
    Ok(Page { objects, is_truncated: is_truncated.ok_or(Malformed)? })
}

/// Reads the text of a key, the ETag and the size.
fn contents(reader: &mut Reader<'_>) -> Result<(String, String, u64), Malformed> {
    let (mut key, mut etag, mut size) = (None, None, None);
    loop {
        match reader.next()?.ok_or(Malformed)? {
            Event::Start("Key") => key = Some(reader.text_of("Key")?),
            Event::Start("ETag") => etag = Some(reader.text_of("ETag")?),
            Event::Start("Size") => size = reader.text_of("Size")?.parse().ok(),
            Event::Start(_) => reader.skip()?,
            Event::End("Contents") => break,
            Event::End(_) => return Err(Malformed),
            Event::Text(_) => {}
        }
    }
    let is_etag = |etag: &String| {
        !etag.is_empty()
            && etag.len() <= ETAG_LEN_MAX
            && etag.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let etag = etag.filter(is_etag).ok_or(Malformed)?;
    // Some servers list it without the quotes that belong to it.
    let etag = if etag.starts_with('"') { etag } else { format!("\"{etag}\"") };
    Ok((key.ok_or(Malformed)?, etag, size.ok_or(Malformed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(keys: &[&str], is_truncated: bool, is_encoded: bool) -> String {
        let encoding = if is_encoded { "<EncodingType>url</EncodingType>" } else { "" };
        let contents = keys.iter().map(|key| {
            format!(
                "<Contents><Key>{key}</Key><Size>3</Size><Owner><ID>x</ID></Owner>\
                 <ETag>&quot;e&quot;</ETag></Contents>"
            )
        });
        let contents: String = contents.collect();
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\"><Name>b</Name>{contents}\
             {encoding}<IsTruncated>{is_truncated}</IsTruncated><Prefix/></ListBucketResult>"
        )
    }

    fn keys(text: &str) -> Vec<Vec<u8>> {
        parse(text).unwrap().objects.into_iter().map(|object| object.key).collect()
    }

    #[test]
    fn keys_are_raw_bytes() {
        let encoded = page(&["a%0Ab", "a%2525", "a%2Bb", "a+b", "a//b/", "%EF%BC%BA"], true, true);
        let raw = [&b"a\nb"[..], b"a%25", b"a+b", b"a b", b"a//b/", "\u{ff3a}".as_bytes()];
        assert_eq!(keys(&encoded), raw);
        assert_eq!(keys(&page(&["a+b%", "&lt;&amp;"], true, false)), [&b"a+b%"[..], b"<&"]);
        let object = &parse(&encoded).unwrap().objects[0];
        assert_eq!((&*object.etag, object.size), ("\"e\"", 3));
    }

    #[test]
    fn a_page_without_its_end_is_refused() {
        let whole = page(&["a", "b"], false, true);
        assert!(parse(&whole).is_ok());
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "{cut}");
        }
        let silent = whole.replace("<IsTruncated>false</IsTruncated>", "");
        assert!(parse(&silent).is_err());
        assert!(parse("<Error><Code>x</Code></Error>").is_err());
    }

    #[test]
    fn broken_promises_are_named() {
        let check = |keys: &[&str], is_truncated, after: &[u8]| {
            check(&parse(&page(keys, is_truncated, true)).unwrap(), b"", after)
        };
        assert_eq!(check(&["b", "c"], true, b"a"), Ok(()));
        assert_eq!(check(&["b", "a"], true, b""), Err(ListingProblem::Unordered));
        assert_eq!(check(&["b", "b"], true, b""), Err(ListingProblem::Unordered));
        assert_eq!(check(&["a", "b"], true, b"a"), Err(ListingProblem::Repeated));
        assert_eq!(check(&["a", "b"], true, b"b"), Err(ListingProblem::Repeated));
        assert_eq!(check(&[], true, b"a"), Err(ListingProblem::Stuck));
        assert_eq!(check(&[], false, b"a"), Ok(()));
    }

    #[test]
    fn keys_in_the_order_of_utf16_are_unordered() {
        // U+1D655 before U+FF3A, as their surrogates sort.
        let text = page(&["%F0%9D%99%95", "%EF%BC%BA"], false, true);
        assert_eq!(check(&parse(&text).unwrap(), b"", b""), Err(ListingProblem::Unordered));
    }

    #[test]
    fn a_key_outside_of_the_prefix_is_foreign() {
        let text = page(&["x/a"], false, true);
        assert_eq!(check(&parse(&text).unwrap(), b"y/", b""), Err(ListingProblem::Foreign));
    }
}

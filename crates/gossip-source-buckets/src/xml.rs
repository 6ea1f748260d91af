//! The little XML that listings and errors are made of: elements with text, read forward once.
//!
//! A listing has no attributes that matter, no CDATA and no document type. What else is there is
//! skipped, and malformed text is refused.

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// `<name …>`, without a prefix.
    Start(&'a str),
    /// `</name>`.
    End(&'a str),
    /// Text between tags, as it is written.
    Text(&'a str),
}

/// A text that is read forward.
pub(crate) struct Reader<'a> {
    rest: &'a str,
    /// The element that a tag `<name/>` ends as well.
    ended: Option<&'a str>,
}

/// The text is not well-formed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

impl<'a> Reader<'a> {
    pub(crate) const fn new(text: &'a str) -> Self {
        Self { rest: text, ended: None }
    }

    /// Returns the next event; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Event<'a>>, Malformed> {
        if let Some(name) = self.ended.take() {
            return Ok(Some(Event::End(name)));
        }
        loop {
            let Some(at) = self.rest.find('<') else {
                // The end of a document that was cut is not the end of the listing.
                return if self.rest.trim().is_empty() { Ok(None) } else { Err(Malformed) };
            };
            if at > 0 {
                let (text, rest) = self.rest.split_at(at);
                self.rest = rest;
                return Ok(Some(Event::Text(text)));
            }
            let close = self.rest.find('>').ok_or(Malformed)?;
            let tag = &self.rest[1..close];
            self.rest = &self.rest[close + 1..];
            if tag.starts_with('?') {
                continue;
            }
            if tag.starts_with('!') {
                return Err(Malformed);
            }
            if let Some(name) = tag.strip_prefix('/') {
                return Ok(Some(Event::End(local(name.trim_end()))));
            }
            let (tag, is_whole) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let name = local(tag.split(char::is_whitespace).next().unwrap_or_default());
            self.ended = is_whole.then_some(name);
            return Ok(Some(Event::Start(name)));
        }
    }

    /// Returns the text of the element that was just started, and reads its end.
    pub(crate) fn text_of(&mut self, element: &str) -> Result<String, Malformed> {
        let mut text = String::new();
        loop {
            match self.next()?.ok_or(Malformed)? {
                Event::Text(part) => text.push_str(&unescape(part)?),
                Event::End(name) if name == element => return Ok(text),
                Event::Start(_) | Event::End(_) => return Err(Malformed),
            }
        }
    }

    /// Reads to the end of the element that was just started.
    pub(crate) fn skip(&mut self) -> Result<(), Malformed> {
        let mut depth = 1;
        while depth > 0 {
            match self.next()?.ok_or(Malformed)? {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                Event::Text(_) => {}
            }
        }
        Ok(())
    }
}

/// Returns the name without the prefix of its namespace.
fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, name)| name)
}

/// Replaces the references of XML.
fn unescape(text: &str) -> Result<String, Malformed> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        let end = rest[at..].find(';').ok_or(Malformed)? + at;
        out.push(match &rest[at + 1..end] {
            "amp" => '&',
            "lt" => '<',
            "gt" => '>',
            "quot" => '"',
            "apos" => '\'',
            number => {
                let number = number.strip_prefix('#').ok_or(Malformed)?;
                let code = match number.strip_prefix(['x', 'X']) {
                    Some(digits) => u32::from_str_radix(digits, 16),
                    None => number.parse(),
                };
                code.ok().and_then(char::from_u32).ok_or(Malformed)?
            }
        });
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn elements_are_read_forward() {
        let mut reader =
            Reader::new("<?xml version='1.0'?>\n<a:L x='1'><K>a&amp;b&#x26;c&#38;</K><E/></a:L>\n");
        assert_eq!(reader.next(), Ok(Some(Event::Text("\n"))));
        assert_eq!(reader.next(), Ok(Some(Event::Start("L"))));
        assert_eq!(reader.next(), Ok(Some(Event::Start("K"))));
        assert_eq!(reader.text_of("K").unwrap(), "a&b&c&");
        assert_eq!(reader.next(), Ok(Some(Event::Start("E"))));
        assert_eq!(reader.text_of("E").unwrap(), "");
        assert_eq!(reader.next(), Ok(Some(Event::End("L"))));
        assert_eq!(reader.next(), Ok(None));
    }

    #[test]
    fn a_malformed_text_is_refused() {
        for bad in ["<a", "<a>text", "<!DOCTYPE a>", "text"] {
            let mut reader = Reader::new(bad);
            let last = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            assert_eq!(last, Err(Malformed), "{bad}");
        }
        for bad in ["&", "&nbsp;", "&#xD800;", "&#;", "&#99999999999;"] {
            assert_eq!(unescape(bad), Err(Malformed), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "[<>/&;#a-c ?!:x0-9]{0,40}") {
            let mut reader = Reader::new(&text);
            while let Ok(Some(_)) = reader.next() {}
            let _ = unescape(&text);
        }
    }
}

//! Percent-encoding of URLs.

/// Replaces each `%` and its two hex digits by the byte that they name. Returns `None` if two hex
/// digits do not follow a `%`, or if the result is not UTF-8.
///
/// ```
/// use gossip_stdx::percent_decode;
///
/// assert_eq!(percent_decode("my%20rows").as_deref(), Some("my rows"));
/// assert_eq!(percent_decode("100%"), None);
/// ```
#[must_use]
pub fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte != b'%' {
            bytes.push(*byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        bytes.push(hex_digit(digits[0])? * 16 + hex_digit(digits[1])?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

fn hex_digit(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn malformed_escapes_are_refused() {
        // A parser of numbers would accept a sign; `%ff` alone is not UTF-8.
        for text in ["%", "%4", "%+1", "%-1", "%4g", "% 1", "a%", "%ff", "%c3"] {
            assert_eq!(percent_decode(text), None, "{text}");
        }
    }

    #[test]
    fn digits_of_both_cases_and_bytes_of_one_letter_are_joined() {
        assert_eq!(percent_decode("%c3%A9%2F%2f%25").as_deref(), Some("é//%"));
        assert_eq!(percent_decode("").as_deref(), Some(""));
    }

    proptest! {
        #[test]
        fn decoding_inverts_encoding(text in any::<String>()) {
            let encoded: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
            prop_assert_eq!(percent_decode(&encoded), Some(text));
        }
    }
}

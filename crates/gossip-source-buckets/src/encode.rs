//! Percent-encoding of raw bytes, in the one form that signatures use.

/// Appends `bytes` to `out`: unreserved characters as they are, everything else as `%XX` in upper
/// case. A slash is kept in a path and encoded in a query.
pub(crate) fn encode_into(out: &mut String, bytes: &[u8], keeps_slash: bool) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        let is_plain = byte.is_ascii_alphanumeric() || b"-_.~".contains(byte);
        if is_plain || *byte == b'/' && keeps_slash {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}

/// Decodes the text of a key in a listing, once: `%XX` is a byte, `+` a space.
///
/// `None` if two hex digits do not follow a `%`.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let (digits, tail) = rest.split_at_checked(2)?;
                let digit = |digit: u8| char::from(digit).to_digit(16);
                let value = digit(digits[0])? * 16 + digit(digits[1])?;
                bytes.push(u8::try_from(value).ok()?);
                rest = tail;
            }
            _ => bytes.push(*byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn encoded_bytes_decode_to_the_same(bytes: Vec<u8>, keeps_slash: bool) {
            let mut text = String::new();
            encode_into(&mut text, &bytes, keeps_slash);
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(decode(&text), Some(bytes));
        }
    }

    #[test]
    fn texts_are_decoded_once() {
        assert_eq!(decode("a%2525b").unwrap(), b"a%25b");
        assert_eq!(decode("a+b%2Bc").unwrap(), b"a b+c");
        for bad in ["%", "%2", "%zz", "%+1"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }
}

//! Signature Version 4, on the HMAC-SHA256 of `ring`.
//!
//! The tests are the examples that AWS publishes for S3.

use ring::{digest, hmac};

use crate::clock::Seconds;
use crate::credentials::Keys;

/// The hash of an empty body: requests of this crate have no other.
pub(crate) const EMPTY_HASH: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The signed parts of a request.
pub(crate) struct Signed<'a> {
    pub(crate) method: &'a str,
    /// Encoded.
    pub(crate) path: &'a str,
    /// Encoded names and values.
    pub(crate) query: &'a [(String, String)],
    /// Names in lower case, sorted, with their values. `host` is one of them.
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

impl Signed<'_> {
    /// Returns the value of the header `Authorization`.
    pub(crate) fn authorization(&self, keys: &Keys, region: &str, now: Seconds) -> String {
        let time = now.basic();
        let scope = format!("{}/{region}/s3/aws4_request", &time[..8]);
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let request = digest::digest(&digest::SHA256, self.canonical(&names).as_bytes());
        let text = format!("AWS4-HMAC-SHA256\n{time}\n{scope}\n{}", hex(request.as_ref()));
        let secret = format!("AWS4{}", keys.secret());
        let mut key = secret.into_bytes();
        for part in [&time[..8], region, "s3", "aws4_request"] {
            key = mac(&key, part.as_bytes());
        }
        let signature = hex(&mac(&key, text.as_bytes()));
        let id = keys.id();
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders={names},Signature={signature}"
        )
    }

    fn canonical(&self, names: &str) -> String {
        let query = query_text(self.query);
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let (method, path) = (self.method, self.path);
        format!("{method}\n{path}\n{query}\n{headers}\n{names}\n{EMPTY_HASH}")
    }
}

/// Returns a query in the order that is signed.
pub(crate) fn query_text(query: &[(String, String)]) -> String {
    let mut pairs: Vec<_> = query.iter().collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

fn mac(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signs like the examples in "Authenticating Requests (AWS Signature Version 4)" of the S3
    /// reference, and compares with the signature there.
    fn check(path: &str, query: &[(&str, &str)], range: Option<&str>, signature: &str) {
        let keys = Keys::new(
            "AKIAIOSFODNN7EXAMPLE".to_owned(),
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            None,
            None,
        );
        let query: Vec<_> = query.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        let mut headers = vec![("host", "examplebucket.s3.amazonaws.com")];
        headers.extend(range.map(|range| ("range", range)));
        headers.push(("x-amz-content-sha256", EMPTY_HASH));
        headers.push(("x-amz-date", "20130524T000000Z"));
        let signed = Signed { method: "GET", path, query: &query, headers: &headers };
        let text = signed.authorization(&keys, "us-east-1", Seconds(1_369_353_600));
        assert!(text.ends_with(&format!("Signature={signature}")), "{text}");
    }

    #[test]
    fn an_object_is_signed_as_published() {
        let signature = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";
        check("/test.txt", &[], Some("bytes=0-9"), signature);
    }

    #[test]
    fn a_setting_of_a_bucket_is_signed_as_published() {
        let signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543";
        check("/", &[("lifecycle", "")], None, signature);
    }

    #[test]
    fn a_listing_is_signed_as_published() {
        let signature = "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7";
        // In another order than the signed one.
        check("/", &[("prefix", "J"), ("max-keys", "2")], None, signature);
    }

    #[test]
    fn the_hash_of_nothing_is_that_of_the_digest() {
        assert_eq!(hex(digest::digest(&digest::SHA256, b"").as_ref()), EMPTY_HASH);
    }
}

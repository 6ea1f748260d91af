//! The text behind `s3:`: a bucket, a prefix, and settings.
//!
//! `//BUCKET/PREFIX?endpoint=URL&region=NAME&profile=NAME&style=path|virtual&anonymous=yes&ca=FILE`

use std::path::PathBuf;

use crate::encode::decode;
use crate::environment::BucketEnvironment;

/// A bucket, and the part of it that is listed.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) bucket: String,
    /// Raw bytes; every key begins with them.
    pub(crate) prefix: Vec<u8>,
    pub(crate) endpoint: Endpoint,
    pub(crate) region: Option<String>,
    pub(crate) profile: Option<String>,
    pub(crate) is_anonymous: bool,
    /// Certificates of the authorities, in PEM, if not those of the system.
    pub(crate) ca: Option<PathBuf>,
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) is_tls: bool,
    /// `None` for AWS, whose host depends on the region.
    pub(crate) authority: Option<String>,
    /// Whether the bucket is part of the host and not of the path.
    pub(crate) has_bucket_in_host: bool,
}

/// The longest name of a bucket.
const BUCKET_LEN_MAX: usize = 63;
/// The longest key.
pub(crate) const KEY_LEN_MAX: usize = 1024;

impl Place {
    /// Parses a name. The error names the cause, in words for the user.
    pub(crate) fn parse(name: &str, environment: &BucketEnvironment) -> Result<Self, String> {
        let shape = || "a bucket is s3://BUCKET/PREFIX?endpoint=URL&region=NAME".to_owned();
        let rest = name.strip_prefix("//").ok_or_else(shape)?;
        let (path, query) = match rest.rsplit_once('?') {
            Some((path, query)) => (path, query),
            None => (rest, ""),
        };
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.contains('@') {
            return Err("a URL holds no credentials: use the environment or a profile".to_owned());
        }
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if !(3..=BUCKET_LEN_MAX).contains(&bucket.len()) || !bucket.bytes().all(is_name) {
            return Err(format!("the name of the bucket is invalid; {}", shape()));
        }
        if bucket.ends_with("--x-s3") {
            return Err(
                "a directory bucket (--x-s3) does not list keys in order and cannot start behind \
                 one, so it cannot be resumed; copy it into a general purpose bucket, or list its \
                 keys into a file and use lines:FILE"
                    .to_owned(),
            );
        }
        let settings = Settings::parse(query)?;
        let prefix = decode_prefix(prefix)?;
        if std::str::from_utf8(&prefix).is_err() {
            return Err("the prefix is no UTF-8, so no key can begin with it".to_owned());
        }
        if prefix.len() > KEY_LEN_MAX {
            return Err(format!("the prefix is longer than a key ({KEY_LEN_MAX} bytes)"));
        }
        let given = settings.endpoint.or_else(|| {
            let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"];
            names.iter().find_map(|name| environment.get(name)).map(str::to_owned)
        });
        let endpoint = Endpoint::parse(given.as_deref(), settings.is_virtual, bucket)?;
        Ok(Self {
            bucket: bucket.to_owned(),
            prefix,
            endpoint,
            region: settings.region,
            profile: settings.profile,
            is_anonymous: settings.is_anonymous,
            ca: settings.ca,
        })
    }
}

/// Decodes `%XX` in a prefix; a `+` is itself.
fn decode_prefix(prefix: &str) -> Result<Vec<u8>, String> {
    let decoded = decode(&prefix.replace('+', "%2B"));
    decoded.ok_or_else(|| "the prefix has a % without two digits; write %25 for it".to_owned())
}

#[derive(Default)]
struct Settings {
    endpoint: Option<String>,
    region: Option<String>,
    profile: Option<String>,
    is_virtual: Option<bool>,
    is_anonymous: bool,
    ca: Option<PathBuf>,
}

impl Settings {
    fn parse(query: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value =
                decode(&value.replace('+', "%2B")).and_then(|it| String::from_utf8(it).ok());
            let value = value.filter(|value| !value.is_empty());
            let value = value.ok_or("a setting of the source has no value")?;
            match (name, &*value) {
                ("endpoint", _) => settings.endpoint = Some(value),
                ("region", _) => settings.region = Some(value),
                ("profile", _) => settings.profile = Some(value),
                ("ca", _) => settings.ca = Some(value.into()),
                ("style", "path") => settings.is_virtual = Some(false),
                ("style", "virtual") => settings.is_virtual = Some(true),
                ("anonymous", "yes") => settings.is_anonymous = true,
                _ => {
                    let known = "endpoint, region, profile, style=path|virtual, anonymous=yes, ca";
                    return Err(format!("a setting of the source is unknown; there are {known}"));
                }
            }
        }
        Ok(settings)
    }
}

impl Endpoint {
    fn parse(url: Option<&str>, is_virtual: Option<bool>, bucket: &str) -> Result<Self, String> {
        // With a dot in its name the bucket does not fit the certificate of AWS.
        let fits_host = !bucket.contains('.');
        let Some(url) = url else {
            let has_bucket_in_host = is_virtual.unwrap_or(fits_host);
            return Ok(Self { is_tls: true, authority: None, has_bucket_in_host });
        };
        let (is_tls, authority) = match url.split_once("://") {
            Some(("https", authority)) => (true, authority),
            Some(("http", authority)) => (false, authority),
            Some(_) | None => return Err("the endpoint is no http:// or https:// URL".to_owned()),
        };
        let authority = authority.trim_end_matches('/');
        let is_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
        if authority.is_empty() || !authority.bytes().all(is_host) {
            return Err("the endpoint is a scheme, a host and a port, without a path".to_owned());
        }
        let has_bucket_in_host = is_virtual.unwrap_or(false);
        Ok(Self { is_tls, authority: Some(authority.to_ascii_lowercase()), has_bucket_in_host })
    }

    /// Returns the host, with a port if it has one, for a bucket in a region.
    pub(crate) fn host(&self, bucket: &str, region: &str) -> String {
        let authority = match &self.authority {
            Some(authority) => authority.clone(),
            None if region.starts_with("cn-") => format!("s3.{region}.amazonaws.com.cn"),
            None => format!("s3.{region}.amazonaws.com"),
        };
        if self.has_bucket_in_host { format!("{bucket}.{authority}") } else { authority }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Place, String> {
        Place::parse(name, &BucketEnvironment::default())
    }

    #[test]
    fn a_bucket_with_a_prefix_is_parsed() {
        let place = parse("//logs/a%2525/b+c//?region=eu-west-1").unwrap();
        assert_eq!((&*place.bucket, &*place.prefix), ("logs", &b"a%25/b+c//"[..]));
        assert_eq!(place.endpoint.host("logs", "eu-west-1"), "logs.s3.eu-west-1.amazonaws.com");
        let place = parse("//my.logs?endpoint=http://127.0.0.1:9000/").unwrap();
        assert_eq!(place.endpoint.host("my.logs", "x"), "127.0.0.1:9000");
        assert!(place.prefix.is_empty() && !place.endpoint.is_tls);
    }

    #[test]
    fn a_dot_in_the_name_keeps_the_bucket_out_of_the_host() {
        let place = parse("//my.logs/").unwrap();
        assert_eq!(place.endpoint.host("my.logs", "us-east-1"), "s3.us-east-1.amazonaws.com");
    }

    #[test]
    fn what_cannot_be_listed_is_refused_with_the_reason() {
        for (name, part) in [
            ("logs", "s3://BUCKET"),
            ("//x", "name of the bucket"),
            ("//a:b@logs/", "credentials"),
            ("//logs--use1-az4--x-s3/a", "directory bucket"),
            ("//logs/a%2", "%25"),
            ("//logs?endpoint=ftp://x", "http://"),
            ("//logs?endpoint=http://x/path", "without a path"),
            ("//logs?reigon=x", "unknown"),
            ("//logs?region=", "no value"),
        ] {
            let error = parse(name).err().unwrap();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn an_endpoint_of_the_environment_is_used() {
        let environment = BucketEnvironment::from_lookup(|name| {
            (name == "AWS_ENDPOINT_URL").then(|| "http://localhost:5000".to_owned())
        });
        let place = Place::parse("//logs", &environment).unwrap();
        assert_eq!(place.endpoint.host("logs", "x"), "localhost:5000");
    }
}

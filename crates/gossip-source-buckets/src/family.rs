//! The family of `s3://BUCKET/PREFIX`.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use gossip_contracts::connector::{Connector, ConnectorError};
use gossip_contracts::coordination::ShardSpec;
use gossip_frontier::{ShardSpecScratch, range_shard_ref};
use gossip_scanner_runtime::connectors::{KeyFormat, SourceFamily, SourceRefusal};

use crate::connector::BucketConnector;
use crate::environment::BucketEnvironment;
use crate::list::NoPage;
use crate::object::Driver;
use crate::place::Place;
use crate::request::Client;

/// Behind every key: UTF-8 has no such byte.
const END: [u8; 1] = [0xFF];

/// The family of `s3://BUCKET/PREFIX`.
#[derive(Clone, Debug, Default)]
pub struct Buckets {
    environment: BucketEnvironment,
}

impl Buckets {
    /// Returns the family, with credentials, region and endpoint from this environment.
    #[must_use]
    pub const fn new(environment: BucketEnvironment) -> Self {
        Self { environment }
    }

    fn place(&self, name: &OsStr) -> Result<Place, String> {
        let text = name.to_str().ok_or("the prefix is no text; write %XX for its bytes")?;
        Place::parse(text, &self.environment)
    }
}

impl SourceFamily for Buckets {
    fn open(&self, name: &OsStr) -> Result<Box<dyn Connector>, ConnectorError> {
        let place = self.place(name).map_err(|_| ConnectorError::NotFound)?;
        let client = Client::new(place, self.environment.clone());
        let client = Arc::new(client.map_err(crate::request::Failure::into_error)?);
        let driver = Driver::start().map_err(|error| ConnectorError::from_io(&error))?;
        Ok(Box::new(BucketConnector::new(client, Arc::new(driver))))
    }

    /// Lists one key: whatever prevents that would park every shard.
    fn resolve(&self, name: &OsStr) -> Result<OsString, SourceRefusal> {
        let place = self.place(name).map_err(SourceRefusal::new)?;
        let endpoint = place.endpoint.clone();
        let client = Client::new(place, self.environment.clone());
        let client = client.map_err(|failure| SourceRefusal::new(failure.to_string()))?;
        let driver = Driver::start();
        let driver = driver.map_err(|error| SourceRefusal::new(error.to_string()))?;
        let listed = driver.run(async move {
            let prefix = client.place.prefix.clone();
            client.list(&prefix, b"", 1).await
        });
        match listed {
            Some(Ok(_)) => {}
            Some(Err(NoPage::Failed(failure))) => {
                return Err(SourceRefusal::new(failure.to_string()));
            }
            Some(Err(NoPage::Broken(problem))) => {
                return Err(SourceRefusal::new(problem.to_string()));
            }
            None => return Err(SourceRefusal::new("the request ended early")),
        }
        // An endpoint of the environment becomes part of the name: elsewhere it may be another one,
        // and the same name another bucket.
        let text = name.to_string_lossy();
        let Some(authority) = endpoint.authority.filter(|_| !text.contains("endpoint=")) else {
            return Ok(name.to_owned());
        };
        let scheme = if endpoint.is_tls { "https" } else { "http" };
        let separator = if text.contains('?') { '&' } else { '?' };
        Ok(format!("{text}{separator}endpoint={scheme}://{authority}").into())
    }

    fn root(&self, name: &OsStr) -> ShardSpec {
        let prefix = self.place(name).map(|place| place.prefix).unwrap_or_default();
        let start = if prefix.is_empty() { &[0][..] } else { &prefix };
        let mut end = prefix.clone();
        // The last byte of a prefix in UTF-8 has a greater one.
        match end.last_mut() {
            Some(last) if *last < 0xFF => *last += 1,
            Some(_) | None => end = END.to_vec(),
        }
        let mut scratch = ShardSpecScratch::new();
        let root = range_shard_ref(start, &end, b"", &mut scratch);
        let root = root.expect("a prefix is shorter than a key, and below its successor");
        ShardSpec::try_from(root).expect("a borrowed spec was validated")
    }

    fn key_format(&self, _name: &OsStr) -> KeyFormat {
        KeyFormat::Bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_has_every_key_with_the_prefix() {
        let root = |name: &str| Buckets::default().root(OsStr::new(name));
        let whole = root("//bucket");
        assert_eq!((whole.start(), whole.end()), (&[0][..], &END[..]));
        let part = root("//bucket/a/b");
        assert_eq!((part.start(), part.end()), (&b"a/b"[..], &b"a/c"[..]));
        // Refused when it is resolved.
        let none = root("//bucket/%ff");
        assert_eq!((none.start(), none.end()), (whole.start(), whole.end()));
    }
}

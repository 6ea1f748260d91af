//! The identity of an item: connector, installation, locator.
//!
//! A locator is opaque here. A connector chooses bytes that stay the same for as long as it
//! considers the item to be the same. All types borrow or copy: deriving an item id allocates
//! nothing.

use std::fmt;

use super::canonical::try_prefix_of;
use super::{
    CanonicalBytes, CanonicalHasher, ConnectorInstanceIdHash, Domain, IdentityInputError,
    ObjectVersionId, StableItemId,
};

/// The kind of a connector: one to eight graphic ASCII characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectorTag {
    /// Graphic ASCII, at least one byte, then zeros. No zero precedes a character, so the padding
    /// cannot be mistaken for part of the tag.
    bytes: [u8; Self::LEN],
}

impl ConnectorTag {
    /// Width of a tag, padding included. Eight bytes compare as one word.
    pub(crate) const LEN: usize = 8;
    /// Files of a local directory tree.
    pub const FS_LOCAL: Self = Self::from_ascii(b"fslocal");
    /// Objects of a local git repository.
    pub const GIT_LOCAL: Self = Self::from_ascii(b"gitlocal");

    /// Returns the tag with these characters. For literals.
    ///
    /// # Panics
    ///
    /// If [`Self::try_from_ascii`] returns an error.
    #[must_use]
    pub(crate) const fn from_ascii(tag: &[u8]) -> Self {
        match Self::try_from_ascii(tag) {
            Ok(tag) => tag,
            Err(_) => panic!("a connector tag is one to eight graphic ASCII characters"),
        }
    }

    /// Returns the tag with these characters.
    ///
    /// # Errors
    ///
    /// In this order: `EmptyTag`, `TagTooLong`, `NonGraphicByte` for the first such byte.
    pub const fn try_from_ascii(tag: &[u8]) -> Result<Self, IdentityInputError> {
        if tag.is_empty() {
            return Err(IdentityInputError::EmptyTag);
        }
        if tag.len() > Self::LEN {
            return Err(IdentityInputError::TagTooLong(tag.len()));
        }
        // A counter instead of an iterator, so that tags can be constants.
        let mut bytes = [0; Self::LEN];
        let mut index = 0;
        while index < tag.len() {
            let byte = tag[index];
            if !byte.is_ascii_graphic() {
                return Err(IdentityInputError::NonGraphicByte { index, byte });
            }
            bytes[index] = byte;
            index += 1;
        }
        Ok(Self { bytes })
    }

    /// Returns the tag with its padding.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.bytes
    }

    /// Returns the tag without its padding.
    #[must_use]
    pub(crate) fn as_str(&self) -> &str {
        let len = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(Self::LEN);
        str::from_utf8(&self.bytes[..len]).expect("the constructor accepts ASCII only")
    }
}

impl fmt::Debug for ConnectorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectorTag({})", self.as_str())
    }
}

impl fmt::Display for ConnectorTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl CanonicalBytes for ConnectorTag {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        hasher.write_raw(&self.bytes);
    }
}

/// The inputs of an item id.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ItemIdentityKey<'a> {
    tag: ConnectorTag,
    instance: ConnectorInstanceIdHash,
    /// Not empty, and short enough for the canonical length prefix.
    locator: &'a [u8],
}

impl<'a> ItemIdentityKey<'a> {
    /// Returns the item that `locator` names in this installation of a connector. For literals.
    ///
    /// # Panics
    ///
    /// If [`Self::try_new`] returns an error.
    #[must_use]
    pub fn new(tag: ConnectorTag, instance: ConnectorInstanceIdHash, locator: &'a [u8]) -> Self {
        Self::try_new(tag, instance, locator)
            .expect("a literal locator is not empty and shorter than 4 GiB")
    }

    /// Returns the item that `locator` names in this installation of a connector.
    ///
    /// # Errors
    ///
    /// `EmptyLocator`; `InputTooLong` if the locator has 4 GiB or more.
    pub fn try_new(
        tag: ConnectorTag,
        instance: ConnectorInstanceIdHash,
        locator: &'a [u8],
    ) -> Result<Self, IdentityInputError> {
        if locator.is_empty() {
            return Err(IdentityInputError::EmptyLocator);
        }
        try_prefix_of(locator.len())?;
        Ok(Self { tag, instance, locator })
    }

    /// Returns the kind of connector.
    #[must_use]
    pub const fn tag(&self) -> ConnectorTag {
        self.tag
    }

    /// Returns the installation of the connector.
    #[must_use]
    pub const fn instance(&self) -> ConnectorInstanceIdHash {
        self.instance
    }

    /// Returns the connector's name for the item.
    #[must_use]
    pub const fn locator(&self) -> &'a [u8] {
        self.locator
    }
}

/// Shows only the length of the locator: it may be a path or an object key.
impl fmt::Debug for ItemIdentityKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ItemIdentityKey")
            .field("tag", &self.tag)
            .field("instance", &self.instance)
            .field("locator_len", &self.locator.len())
            .finish()
    }
}

impl CanonicalBytes for ItemIdentityKey<'_> {
    #[inline]
    fn write_canonical(&self, hasher: &mut CanonicalHasher) {
        self.tag.write_canonical(hasher);
        self.instance.write_canonical(hasher);
        hasher.write_bytes_prefixed(self.locator);
    }
}

impl StableItemId {
    /// Returns the id of the item with this key.
    #[must_use]
    pub fn derive(key: &ItemIdentityKey<'_>) -> Self {
        Self::from_bytes(Domain::ITEM_ID_V1.digest(key))
    }
}

impl ConnectorInstanceIdHash {
    /// Returns the hash of an installation's id. For ids of bounded length.
    ///
    /// # Panics
    ///
    /// If the id has 4 GiB or more.
    #[must_use]
    pub fn from_instance_id(instance_id: &[u8]) -> Self {
        Self::try_from_instance_id(instance_id).expect("an instance id is shorter than 4 GiB")
    }

    /// Returns the hash of an installation's id. An empty id is valid: the only installation.
    ///
    /// # Errors
    ///
    /// `InputTooLong` if the id has 4 GiB or more.
    pub fn try_from_instance_id(instance_id: &[u8]) -> Result<Self, IdentityInputError> {
        try_prefix_of(instance_id.len())?;
        Ok(Self::from_bytes(Domain::CONNECTOR_INSTANCE_ID_V1.digest(instance_id)))
    }
}

impl ObjectVersionId {
    /// Returns the id of the version that a source describes by these bytes. For literals.
    ///
    /// # Panics
    ///
    /// If [`Self::try_from_version`] returns an error.
    #[must_use]
    pub fn from_version(version: &[u8]) -> Self {
        Self::try_from_version(version)
            .expect("literal version bytes are not empty and shorter than 4 GiB")
    }

    /// Returns the id of the version that a source describes by these bytes.
    ///
    /// # Errors
    ///
    /// `EmptyVersionBytes`; `InputTooLong` if there are 4 GiB or more.
    pub fn try_from_version(version: &[u8]) -> Result<Self, IdentityInputError> {
        if version.is_empty() {
            return Err(IdentityInputError::EmptyVersionBytes);
        }
        try_prefix_of(version.len())?;
        Ok(Self::from_bytes(Domain::OBJECT_VERSION_V1.digest(version)))
    }
}

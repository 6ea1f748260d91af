use proptest::prelude::*;

use super::*;

#[test]
fn debug_prints_no_secret() {
    let key = TenantSecretKey::from_bytes([0xAB; 32]);
    let norm = NormHash::from_digest([0xAB; 32]);
    assert_eq!(format!("{key:?}"), "TenantSecretKey(<redacted>)");
    assert_eq!(format!("{norm:?}"), "NormHash(<redacted>)");
    assert_eq!(format!("{:?}", SecretHash::derive(&key, &norm)), "SecretHash(<redacted>)");
    assert_eq!(format!("{:?}", TenantId::from_bytes([0xAB; 32])), "TenantId(..)");
}

#[test]
fn public_ids_print_as_hexadecimal() {
    let id = FindingId::from_bytes([0xAB; 32]);
    assert_eq!(id.to_string(), "ab".repeat(32));
    assert_eq!(format!("{id:?}"), format!("FindingId({})", "ab".repeat(32)));
    assert_eq!(format!("{:.8}", id), "abababab");
}

proptest! {
    #[test]
    fn secret_values_are_equal_iff_their_bytes_are(a: [u8; 32], at in 0_usize..32, flip: u8) {
        let mut b = a;
        b[at] ^= flip;
        let same = flip == 0;
        prop_assert_eq!(TenantSecretKey::from_bytes(a) == TenantSecretKey::from_bytes(b), same);
        prop_assert_eq!(NormHash::from_digest(a) == NormHash::from_digest(b), same);
        prop_assert_eq!(*NormHash::from_digest(a).as_bytes(), a);
    }

    /// One secret, two tenants: the stored hashes do not reveal that it is the same secret.
    #[test]
    fn secret_hash_depends_on_key_and_secret(
        keys: [[u8; 32]; 2], norms: [[u8; 32]; 2], pick: [bool; 2],
    ) {
        let hash = |key: bool, norm: bool| SecretHash::derive(
            &TenantSecretKey::from_bytes(keys[usize::from(key)]),
            &NormHash::from_digest(norms[usize::from(norm)]),
        );
        let [key, norm] = pick;
        prop_assert_eq!(hash(false, false) == hash(key, norm), !key && !norm);
    }
}

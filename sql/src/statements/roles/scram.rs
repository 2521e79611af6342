//! Passwords as SCRAM-SHA-256 verifiers (RFC 5802, RFC 7677). The server checks a password with its
//! verifier, but the password cannot be computed from it.

use crate::backends::random::RandomSource;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use strandline_base::{Error, Result};

/// The number of hash iterations.
pub const ITERATIONS: u32 = 4096;
/// Bytes of a salt.
const SALT_BYTES: usize = 16;
/// The prefix of verifiers.
const METHOD: &str = "SCRAM-SHA-256";

/// A stored password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// the number of hash iterations
    pub iterations: u32,
    /// the salt of the hash
    pub salt: Vec<u8>,
    /// checks the client's proof
    pub stored_key: [u8; 32],
    /// proves that the server knows the verifier
    pub server_key: [u8; 32],
}

impl std::fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ScramVerifier")
    }
}

fn keyed_hash(key: &[u8], parts: &[&[u8]]) -> Result<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key)
        .map_err(|_| Error::internal("a key of HMAC may have any length"))?;
    parts.iter().for_each(|part| mac.update(part));
    Ok(mac.finalize().into_bytes().into())
}

impl ScramVerifier {
    /// The verifier of `password` with a new salt.
    pub fn new(password: &str, random: &dyn RandomSource) -> Result<Self> {
        let mut salt = vec![0; SALT_BYTES];
        random.fill(&mut salt);
        Self::with_salt(password, salt, ITERATIONS)
    }

    /// The verifier of `password` with a given salt.
    pub fn with_salt(password: &str, salt: Vec<u8>, iterations: u32) -> Result<Self> {
        // As in PostgreSQL, a password that SASLprep refuses is used unchanged.
        let prepared = stringprep::saslprep(password);
        let password = prepared.as_deref().unwrap_or(password).as_bytes();
        let mut step = keyed_hash(password, &[&salt, &1u32.to_be_bytes()])?;
        let mut salted = step;
        for _ in 1..iterations {
            step = keyed_hash(password, &[&step])?;
            salted
                .iter_mut()
                .zip(step)
                .for_each(|(all, one)| *all ^= one);
        }
        let client_key = keyed_hash(&salted, &[b"Client Key"])?;
        Ok(Self {
            iterations,
            salt,
            stored_key: Sha256::digest(client_key).into(),
            server_key: keyed_hash(&salted, &[b"Server Key"])?,
        })
    }

    /// The stored form, which is also PostgreSQL's.
    pub fn to_text(&self) -> String {
        format!(
            "{METHOD}${}:{}${}:{}",
            self.iterations,
            STANDARD.encode(&self.salt),
            STANDARD.encode(self.stored_key),
            STANDARD.encode(self.server_key)
        )
    }

    /// Parses a verifier; `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, keys) = text
            .strip_prefix(METHOD)?
            .strip_prefix('$')?
            .split_once('$')?;
        let (iterations, salt) = head.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let key = |text: &str| <[u8; 32]>::try_from(STANDARD.decode(text).ok()?).ok();
        Some(Self {
            iterations: iterations.parse().ok().filter(|n| *n > 0)?,
            salt: STANDARD.decode(salt).ok()?,
            stored_key: key(stored)?,
            server_key: key(server)?,
        })
    }

    /// Whether `password` is right, in constant time.
    pub fn accepts(&self, password: &str) -> Result<bool> {
        let other = Self::with_salt(password, self.salt.clone(), self.iterations)?;
        let differing = self.stored_key.iter().zip(other.stored_key);
        Ok(differing.fold(0, |all, (a, b)| all | (a ^ b)) == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifiers_are_postgresql_s() {
        // Made by PostgreSQL 15: ALTER ROLE … PASSWORD 'pencil'.
        let text = include_str!("scram_of_pencil.txt").trim();
        let verifier = ScramVerifier::parse(text).expect("a verifier");
        assert_eq!(verifier.to_text(), text);
        assert!(verifier.accepts("pencil").expect("checked"));
        assert!(!verifier.accepts("Pencil").expect("checked"));
    }

    #[test]
    fn what_is_no_verifier_is_none() {
        for text in [
            "",
            "md5abc",
            "SCRAM-SHA-256$0:AA==$AA==:AA==",
            "SCRAM-SHA-256$4096:AA==$x:y",
        ] {
            assert_eq!(ScramVerifier::parse(text), None, "{text}");
        }
    }
}

//! Authentication of clients: SCRAM-SHA-256 against stored verifiers.
//!
//! A client must not be able to find out whether a user exists. A missing user goes through the
//! same exchange, with a salt that is fixed per name and a verifier that no password fits. The
//! server compares a hash of the client's proof; a partial match reveals nothing about the
//! password.

use crate::message::Fields;
use crate::report::protocol_violation;
use pgwire::api::auth::sasl::scram::{
    ScramSecret, ScramServerAuth, ScramServerAuthWaitingForClientFinal,
};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use strandline::{Error, Result, ScramVerifier, SqlState};

/// PostgreSQL's number of iterations.
const ITERATIONS: u32 = 4096;
const PLAIN: &str = "SCRAM-SHA-256";
const BOUND: &str = "SCRAM-SHA-256-PLUS";

/// The server's side of all exchanges.
pub(crate) struct Authenticator {
    random: SystemRandom,
    /// makes the salts of missing users
    nobody: hmac::Key,
    plain: ScramServerAuth,
    /// over TLS: bound to the certificate, so that a man in the middle cannot forward the exchange
    bound: Option<ScramServerAuth>,
}

impl Authenticator {
    /// An authenticator for a server with the certificate chain `certificate_pem`.
    pub fn new(certificate_pem: Option<&[u8]>) -> Result<Self> {
        let random = SystemRandom::new();
        let nobody = hmac::Key::generate(hmac::HMAC_SHA256, &random).map_err(|_| no_random())?;
        let bound = certificate_pem.and_then(|pem| {
            let mut auth = ScramServerAuth::new();
            // The hash of the certificate is unknown: such certificates work without binding.
            auth.configure_certificate(pem).ok().map(|()| auth)
        });
        Ok(Self {
            random,
            nobody,
            plain: ScramServerAuth::new(),
            bound,
        })
    }

    /// The mechanisms that a client may choose from, each ended by NUL.
    pub fn mechanisms(&self, over_tls: bool) -> Vec<u8> {
        let mut names = Vec::new();
        if over_tls && self.bound.is_some() {
            names.extend_from_slice(format!("{BOUND}\0").as_bytes());
        }
        names.extend_from_slice(format!("{PLAIN}\0\0").as_bytes());
        names
    }

    /// Reads the client's first message; returns the answer and the exchange that expects the
    /// proof.
    pub fn begin(
        &self,
        user: &str,
        verifier: Option<ScramVerifier>,
        first: &[u8],
        over_tls: bool,
    ) -> Result<(String, Exchange)> {
        let mut fields = Fields::new(first);
        let mechanism = fields.text()?;
        let data = fields.value()?.unwrap_or_default();
        fields.end()?;
        let bound = self.bound.as_ref().filter(|_| over_tls);
        let auth = match (mechanism, bound) {
            (PLAIN, Some(bound)) => {
                // The client believes that the server offers no binding, so its list of mechanisms
                // was forged.
                if data.starts_with(b"y") {
                    bound
                } else {
                    &self.plain
                }
            }
            (PLAIN, None) => &self.plain,
            (BOUND, Some(bound)) => bound,
            _ => {
                return Err(protocol_violation(
                    "client selected an invalid SASL authentication mechanism",
                ));
            }
        };
        let exists = verifier.is_some();
        let verifier = match verifier {
            Some(verifier) => verifier,
            None => self.nobody(user)?,
        };
        let secret = ScramSecret::Verifier {
            salt: verifier.salt,
            iterations: verifier.iterations as usize,
            stored_key: verifier.stored_key.to_vec(),
            server_key: verifier.server_key.to_vec(),
        };
        let (answer, state) = auth
            .on_client_first_message_with_secret(data, secret)
            .map_err(|e| protocol_violation(format!("malformed SCRAM message: {e}")))?;
        Ok((answer, Exchange { exists, state }))
    }

    /// A made-up verifier for a missing user.
    fn nobody(&self, user: &str) -> Result<ScramVerifier> {
        let salt = hmac::sign(&self.nobody, user.as_bytes());
        let (mut stored_key, mut server_key) = ([0; 32], [0; 32]);
        for key in [&mut stored_key, &mut server_key] {
            self.random.fill(key).map_err(|_| no_random())?;
        }
        Ok(ScramVerifier {
            iterations: ITERATIONS,
            salt: salt.as_ref()[..16].to_vec(),
            stored_key,
            server_key,
        })
    }
}

/// An exchange that waits for the client's proof.
pub(crate) struct Exchange {
    exists: bool,
    state: ScramServerAuthWaitingForClientFinal,
}

impl Exchange {
    /// The server's own proof, if the client's proof is right.
    pub fn finish(&self, last: &[u8]) -> Option<String> {
        let proved = self.state.on_client_final_message(last).ok();
        proved.filter(|_| self.exists)
    }
}

fn no_random() -> Error {
    Error::internal("the system has no random numbers to give")
}

/// 28P01, with the same message for every cause.
pub(crate) fn wrong_password(user: &str) -> Error {
    Error::invalid(
        SqlState("28P01"),
        format!("password authentication failed for user \"{user}\""),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_the_same_salt_each_time() {
        let auth = Authenticator::new(None).unwrap();
        let first = auth.nobody("ada").unwrap();
        assert_eq!(first.salt, auth.nobody("ada").unwrap().salt);
        assert_ne!(first.salt, auth.nobody("bob").unwrap().salt);
        assert_ne!(first.stored_key, auth.nobody("ada").unwrap().stored_key);
    }
}

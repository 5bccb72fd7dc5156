//! Public keys of peers.

use crate::digest::digest;
use crate::pem;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ED25519,
    RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey, VerificationAlgorithm,
};
use std::fmt;
use x509_cert::der::asn1::{Any, BitString};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::referenced::OwnedToRef as _;
use x509_cert::der::{Decode as _, Encode as _};
use x509_cert::spki::{
    AlgorithmIdentifierOwned, AlgorithmIdentifierRef, SubjectPublicKeyInfoOwned,
};

/// Label of a public key in PEM.
const LABEL: &str = "PUBLIC KEY";

const ED25519_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const RSA_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
const RSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.11");
const EC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const EC_P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const EC_P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ECDSA_SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.2");
const ECDSA_SHA384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.4.3.3");

/// Algorithm of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    Ed25519,
    Rsa,
    EcdsaP256,
    EcdsaP384,
}

/// The public key of a cluster: Ed25519, RSA (2,048 to 8,192 bits), or ECDSA (P-256, P-384).
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    algorithm: Algorithm,
    /// SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    der: Vec<u8>,
    bits: Vec<u8>,
}

/// A public key cannot be used, or does not match.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublicKeyError {
    /// It is not a public key in PEM.
    #[error("the public key is not a PEM block `PUBLIC KEY`: {0}")]
    Syntax(String),
    /// Its type is not supported.
    #[error(
        "the public key is of a type that is not supported: use Ed25519, RSA or ECDSA (P-256, P-384)"
    )]
    Type,
    /// The signature is of another key or message.
    #[error("the signature does not match the public key and the signed text")]
    Signature,
}

impl PublicKey {
    /// Parses the bytes of a `publicKey` field: a PEM text, or 32 bytes of an Ed25519 key.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, PublicKeyError> {
        if let Ok(key) = <&[u8; 32]>::try_from(bytes) {
            let syntax = |error: x509_cert::der::Error| PublicKeyError::Syntax(error.to_string());
            let info = SubjectPublicKeyInfoOwned {
                algorithm: Algorithm::Ed25519.key_identifier(),
                subject_public_key: BitString::from_bytes(key).map_err(syntax)?,
            };
            return Self::from_der(&info.to_der().map_err(syntax)?);
        }
        let der = pem::decode(LABEL, bytes).map_err(PublicKeyError::Syntax)?;

        Self::from_der(&der)
    }

    /// Parses a SubjectPublicKeyInfo (RFC 5280, section 4.1.2.7).
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn from_der(der: &[u8]) -> Result<Self, PublicKeyError> {
        let info = SubjectPublicKeyInfoOwned::from_der(der);
        let info = info.map_err(|error| PublicKeyError::Syntax(error.to_string()))?;
        let algorithm = Algorithm::of(&info.algorithm.owned_to_ref());
        let bits = info.subject_public_key.as_bytes();
        let bits = bits.ok_or_else(|| PublicKeyError::Syntax("unused bits".to_owned()))?;

        Ok(Self {
            algorithm: algorithm.ok_or(PublicKeyError::Type)?,
            der: der.to_vec(),
            bits: bits.to_vec(),
        })
    }

    /// Returns the key as DER of a SubjectPublicKeyInfo.
    pub fn to_der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the key as PEM text.
    pub fn to_pem(&self) -> String {
        pem::encode(LABEL, &self.der)
    }

    /// Returns a digest that identifies the key, in hexadecimal digits.
    pub fn fingerprint(&self) -> String {
        digest(&[&self.der])
    }

    /// Verifies the signature of a nonce: pure Ed25519, RSA PKCS #1 v1.5 with SHA-256, or ECDSA with SHA-256
    /// in ASN.1.
    ///
    /// # Errors
    ///
    /// Returns [`PublicKeyError::Signature`] if it is not of this key and message.
    pub fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), PublicKeyError> {
        let scheme: &'static dyn VerificationAlgorithm = match self.algorithm {
            Algorithm::Ed25519 => &ED25519,
            Algorithm::Rsa => &RSA_PKCS1_2048_8192_SHA256,
            Algorithm::EcdsaP256 => &ECDSA_P256_SHA256_ASN1,
            Algorithm::EcdsaP384 => &ECDSA_P384_SHA256_ASN1,
        };

        self.verify_as(scheme, message, signature)
    }

    /// Verifies the signature of a request, whose scheme the request names.
    pub(crate) fn verify_request(
        &self,
        scheme: &AlgorithmIdentifierOwned,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), PublicKeyError> {
        if *scheme != self.algorithm.signature_identifier() {
            return Err(PublicKeyError::Signature);
        }
        if self.algorithm == Algorithm::EcdsaP384 {
            return self.verify_as(&ECDSA_P384_SHA384_ASN1, message, signature);
        }

        self.verify(message, signature)
    }

    /// Returns the algorithm of the key.
    pub(crate) fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Returns the signature algorithm of requests with this key.
    pub(crate) fn signature_identifier(&self) -> AlgorithmIdentifierOwned {
        self.algorithm.signature_identifier()
    }

    fn verify_as(
        &self,
        scheme: &'static dyn VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), PublicKeyError> {
        let verified = UnparsedPublicKey::new(scheme, &self.bits).verify(message, signature);
        verified.map_err(|_| PublicKeyError::Signature)
    }
}

impl Algorithm {
    /// Returns the algorithm of a key; `None` if it is not supported.
    pub(crate) fn of(identifier: &AlgorithmIdentifierRef<'_>) -> Option<Self> {
        let algorithms = [Self::Ed25519, Self::Rsa, Self::EcdsaP256, Self::EcdsaP384];
        let mut algorithms = algorithms.into_iter();

        algorithms.find(|algorithm| algorithm.key_identifier().owned_to_ref() == *identifier)
    }

    /// Returns the identifier in a SubjectPublicKeyInfo (RFC 8410; RFC 3279, section 2.3.1; RFC 5480).
    pub(crate) fn key_identifier(self) -> AlgorithmIdentifierOwned {
        let (oid, parameters) = match self {
            Self::Ed25519 => (ED25519_KEY, None),
            Self::Rsa => (RSA_KEY, Some(Any::null())),
            Self::EcdsaP256 => (EC_KEY, Some(Any::from(EC_P256))),
            Self::EcdsaP384 => (EC_KEY, Some(Any::from(EC_P384))),
        };

        AlgorithmIdentifierOwned { oid, parameters }
    }

    /// Returns the identifier of its signatures in requests (RFC 8410; RFC 4055, section 5; RFC 5758).
    fn signature_identifier(self) -> AlgorithmIdentifierOwned {
        let (oid, parameters) = match self {
            Self::Ed25519 => (ED25519_KEY, None),
            Self::Rsa => (RSA_SHA256, Some(Any::null())),
            Self::EcdsaP256 => (ECDSA_SHA256, None),
            Self::EcdsaP384 => (ECDSA_SHA384, None),
        };

        AlgorithmIdentifierOwned { oid, parameters }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({:?})", self.algorithm)
    }
}

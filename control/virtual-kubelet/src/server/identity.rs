//! Users: who sends a request, by a client certificate or a token.

use http::{HeaderMap, header};
use std::collections::BTreeMap;
use x509_cert::certificate::{CertificateInner, Rfc5280};
use x509_cert::der::Decode as _;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::ext::pkix::name::DirectoryString;

const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// Group of all users that are authenticated.
const AUTHENTICATED: &str = "system:authenticated";

/// A user that is authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    /// Name of the user.
    pub(crate) name: String,
    /// UID, which tokens have.
    pub(crate) uid: Option<String>,
    /// Groups of the user.
    pub(crate) groups: Vec<String>,
    /// Further attributes, which tokens have.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Returns the user of a client certificate in DER: the common name, with the organizations as groups. `None` if the
    /// certificate names no user.
    ///
    /// The certificate must have been verified.
    pub(crate) fn of_certificate(der: &[u8]) -> Option<Self> {
        let certificate = CertificateInner::<Rfc5280>::from_der(der).ok()?;
        let mut user = Self::default();
        for attribute in certificate.tbs_certificate().subject().iter() {
            let is_user = attribute.oid == COMMON_NAME;
            if !is_user && attribute.oid != ORGANIZATION {
                continue;
            }
            let value = DirectoryString::try_from(&attribute.value).ok()?;
            match is_user {
                // The last one counts, as for kube-apiserver.
                true => user.name = value.value().into_owned(),
                false => user.groups.push(value.value().into_owned()),
            }
        }

        (!user.name.is_empty()).then(|| user.authenticated())
    }

    /// Adds the group that all authenticated users have.
    pub(crate) fn authenticated(mut self) -> Self {
        if !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}

/// Returns the bearer token of a request (RFC 6750).
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    let token = token.trim();

    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};

    fn certificate(subject: &[(DnType, DnValue)]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (name, value) in subject {
            params.distinguished_name.push(name.clone(), value.clone());
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_the_user_and_the_organization_a_group() {
        let der = certificate(&[
            (DnType::OrganizationName, "kubeadm:cluster-admins".into()),
            (DnType::CommonName, "kube-apiserver-kubelet-client".into()),
        ]);

        let user = User::of_certificate(&der).unwrap();

        assert_eq!(user.name, "kube-apiserver-kubelet-client");
        assert_eq!(user.groups, ["kubeadm:cluster-admins", AUTHENTICATED]);
        assert_eq!(user.clone().authenticated(), user);
    }

    #[test]
    fn a_certificate_without_a_common_name_names_no_user() {
        let der = certificate(&[(DnType::OrganizationName, "system:masters".into())]);
        assert_eq!(User::of_certificate(&der), None);
        let der = certificate(&[(DnType::CommonName, "".into())]);
        assert_eq!(User::of_certificate(&der), None);
        assert_eq!(User::of_certificate(b"no certificate"), None);
    }

    #[test]
    fn a_token_is_that_of_the_bearer_scheme() {
        let bearer = |value: &str| {
            let value = HeaderValue::from_str(value).unwrap();
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            super::bearer(&headers).map(str::to_owned)
        };
        assert_eq!(bearer("Bearer abc"), Some("abc".to_owned()));
        assert_eq!(bearer("bearer  abc "), Some("abc".to_owned()));
        for value in ["Bearer", "Bearer ", "Basic abc", "abc", ""] {
            assert_eq!(bearer(value), None, "{value}");
        }
        assert_eq!(super::bearer(&HeaderMap::new()), None);
    }
}

//! Tokens for the API servers of Amazon EKS, by which upstream's providers there authenticate consumers.
//!
//! A token is the URL of a signed request to Amazon's Security Token Service. The API server sends the request to learn which
//! IAM user has signed it (<https://github.com/kubernetes-sigs/aws-iam-authenticator#api-authorization-from-outside-a-cluster>).

use aws_sigv4::http_request::{
    SignableBody, SignableRequest, SignatureLocation, SigningSettings, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use std::borrow::Cow;
use std::time::{Duration, SystemTime};

/// Time between two tokens. The API server accepts one for 15 minutes.
const TOKEN_INTERVAL: Duration = Duration::from_secs(600);

/// Most characters of a field.
const FIELD_LEN_MAX: usize = 256;

/// Validity of the signed URL, as `aws eks get-token` requests it.
const EXPIRY: Duration = Duration::from_secs(60);

/// The credentials of an IAM user of an EKS cluster. The provider that has issued them may be hostile.
#[derive(Clone, Copy)]
pub struct EksCredentials<'a> {
    /// IAM access key ID.
    pub access_key_id: &'a str,
    /// IAM secret access key.
    pub secret_access_key: &'a str,
    /// AWS region of the cluster.
    pub region: &'a str,
    /// Name of the EKS cluster.
    pub cluster: &'a str,
}

impl std::fmt::Debug for EksCredentials<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EksCredentials")
            .field("region", &self.region)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// Credentials cannot sign a token.
#[derive(Debug, thiserror::Error)]
pub enum EksError {
    /// A field is empty, too long, or has characters that Amazon does not use there.
    #[error("{0} is invalid: use 1 to {FIELD_LEN_MAX} letters, digits and {1}")]
    Field(&'static str, &'static str),
    /// The library cannot sign a request at this time, or for this region.
    #[error("failed to sign a token: {0}")]
    Signature(String),
}

impl EksCredentials<'_> {
    /// Checks the characters of all fields, which become parts of URLs and headers.
    ///
    /// # Errors
    ///
    /// Returns the field that is invalid.
    pub fn check(&self) -> Result<(), EksError> {
        let fields = [
            ("awsAccessKeyID", self.access_key_id, "_"),
            ("awsSecretAccessKey", self.secret_access_key, "+/="),
            ("awsRegion", self.region, "-"),
            ("awsClusterName", self.cluster, "-_"),
        ];
        let is_valid = |value: &str, others: &str| {
            let mut characters = value.chars();
            let is_short = (1..=FIELD_LEN_MAX).contains(&value.len());
            is_short && characters.all(|it| it.is_ascii_alphanumeric() || others.contains(it))
        };
        match fields
            .iter()
            .find(|(_, value, others)| !is_valid(value, others))
        {
            Some((field, _, others)) => Err(EksError::Field(field, others)),
            None => Ok(()),
        }
    }

    /// Returns the token of the interval that `now` is in, and the time until the next one.
    ///
    /// # Errors
    ///
    /// Returns an error if a field is invalid.
    pub fn token(&self, now: jiff::Timestamp) -> Result<(String, Duration), EksError> {
        self.check()?;
        let interval = TOKEN_INTERVAL.as_secs();
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        let age = seconds % interval;
        let begin = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds - age);
        let url = self.signed_url(begin).map_err(EksError::Signature)?;
        let token = format!("k8s-aws-v1.{}", URL_SAFE_NO_PAD.encode(url));

        Ok((token, Duration::from_secs(interval - age)))
    }

    fn signed_url(&self, time: SystemTime) -> Result<String, String> {
        let domain = match self.region.split('-').next() {
            Some("cn") => "amazonaws.com.cn",
            _ => "amazonaws.com",
        };
        let host = format!("sts.{}.{domain}", self.region);
        let url = format!("https://{host}/?Action=GetCallerIdentity&Version=2011-06-15");
        let (id, secret) = (self.access_key_id, self.secret_access_key);
        let credentials = aws_credential_types::Credentials::new(id, secret, None, None, "Liqo");
        let identity = credentials.into();
        let mut settings = SigningSettings::default();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(EXPIRY);
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(self.region)
            .name("sts")
            .time(time)
            .settings(settings)
            .build()
            .map_err(|error| error.to_string())?
            .into();
        let headers = [("host", host.as_str()), ("x-k8s-aws-id", self.cluster)];
        let body = SignableBody::Bytes(&[]);
        let request = SignableRequest::new("GET", url.as_str(), headers.into_iter(), body)
            .map_err(|error| error.to_string())?;
        let signed = sign(request, &parameters).map_err(|error| error.to_string())?;
        let (instructions, _) = signed.into_parts();
        let query: String = instructions
            .params()
            .iter()
            .map(|(name, value)| format!("&{name}={}", encoded(value)))
            .collect();

        Ok(url + &query)
    }
}

/// Returns a value of a query in percent-encoding.
fn encoded(value: &str) -> Cow<'_, str> {
    percent_encoding::utf8_percent_encode(value, UNRESERVED).into()
}

/// The characters that Amazon's signatures do not encode: those that RFC 3986 section 2.3 calls unreserved.
const UNRESERVED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns the PEM bundle of an EKS cluster's authority, which upstream takes from Amazon in Base64 once more.
pub fn eks_authority(ca: &[u8]) -> Cow<'_, [u8]> {
    match STANDARD.decode(ca.trim_ascii()) {
        Ok(pem) => pem.into(),
        Err(_) => ca.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILAN: EksCredentials<'_> = EksCredentials {
        access_key_id: "AKIDEXAMPLE",
        secret_access_key: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        region: "eu-west-1",
        cluster: "milan",
    };

    /// The URL for [`MILAN`] by botocore 1.44.8, the library of `aws eks get-token`.
    const SIGNED_URL: &str = "https://sts.eu-west-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15&\
        X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIDEXAMPLE%2F20261126%2Feu-west-1%2Fsts%2Faws4_request&\
        X-Amz-Date=20261126T014000Z&X-Amz-Expires=60&X-Amz-SignedHeaders=host%3Bx-k8s-aws-id&\
        X-Amz-Signature=13682e6aaf6c738879a17d489585eab2f3d2d4fca7f415aa26850245344602b3";

    fn url(token: &str) -> String {
        let encoded = token.strip_prefix("k8s-aws-v1.").unwrap();
        String::from_utf8(URL_SAFE_NO_PAD.decode(encoded).unwrap()).unwrap()
    }

    #[test]
    fn a_token_is_that_of_amazons_tools_and_lasts_for_its_interval() {
        for (now, rest) in [("01:40:00", 600), ("01:49:59", 1)] {
            let now = format!("2026-11-26T{now}Z").parse().unwrap();
            let (token, wait) = MILAN.token(now).unwrap();
            let mut parts: Vec<_> = SIGNED_URL.split('&').collect();
            let url = url(&token);
            let mut signed: Vec<_> = url.split('&').collect();
            parts.sort_unstable();
            signed.sort_unstable();
            assert_eq!(signed, parts);
            assert_eq!(wait, Duration::from_secs(rest));
        }
        let (token, _) = MILAN
            .token("2026-11-26T01:50:00Z".parse().unwrap())
            .unwrap();
        assert!(url(&token).contains("X-Amz-Date=20261126T015000Z"));
    }

    #[test]
    fn a_region_of_china_has_its_own_domain() {
        let milan = EksCredentials {
            region: "cn-north-1",
            ..MILAN
        };
        let (token, _) = milan.token(jiff::Timestamp::UNIX_EPOCH).unwrap();
        assert!(url(&token).starts_with("https://sts.cn-north-1.amazonaws.com.cn/?Action="));
    }

    #[test]
    fn fields_that_could_leave_their_place_are_refused_by_name() {
        let refusal = |credentials: EksCredentials<'_>| {
            let token = credentials.token(jiff::Timestamp::UNIX_EPOCH);
            token.unwrap_err().to_string()
        };
        let long = "a".repeat(FIELD_LEN_MAX + 1);
        for value in ["", "a.example.org/", "eu west", "a\nb", "\u{e9}", &long] {
            let region = EksCredentials {
                region: value,
                ..MILAN
            };
            assert!(
                refusal(region).starts_with("awsRegion is invalid"),
                "{value}"
            );
            let cluster = EksCredentials {
                cluster: value,
                ..MILAN
            };
            assert!(refusal(cluster).starts_with("awsClusterName is"), "{value}");
        }
        let access_key_id = EksCredentials {
            access_key_id: "a/b",
            ..MILAN
        };
        assert!(refusal(access_key_id).starts_with("awsAccessKeyID is"));
        let secret = EksCredentials {
            secret_access_key: "my secret",
            ..MILAN
        };
        let refusal = refusal(secret);
        assert!(refusal.starts_with("awsSecretAccessKey is"));
        assert!(!refusal.contains("my secret"));
    }

    #[test]
    fn an_authority_is_decoded_where_upstream_has_encoded_it_twice() {
        let pem = b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert_eq!(*eks_authority(pem), *pem);
        let twice = STANDARD.encode(pem);
        assert_eq!(*eks_authority(twice.as_bytes()), *pem);
    }
}

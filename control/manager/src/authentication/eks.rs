//! Credentials of an EKS cluster, where upstream's providers authenticate consumers by IAM users instead of certificates.
//!
//! This project takes over those of a provider, and issues none.

use control_api::authentication::auth_params::AwsConfig;
use control_credentials::EksCredentials;
use k8s_openapi::api::core::v1::Secret;

/// Fields of the kubeconfig Secret, as upstream writes them.
const ACCESS_KEY_ID: &str = "awsAccessKeyID";
const SECRET_ACCESS_KEY: &str = "awsSecretAccessKey";
const REGION: &str = "awsRegion";
const CLUSTER: &str = "awsEksClusterID";
const USER_ARN: &str = "awsIamUserArn";

/// Returns the credentials that a provider has issued.
pub(super) fn issued(aws: &AwsConfig) -> EksCredentials<'_> {
    EksCredentials {
        access_key_id: &aws.aws_access_key_id,
        secret_access_key: &aws.aws_secret_access_key,
        region: &aws.aws_region,
        cluster: &aws.aws_cluster_name,
    }
}

/// Returns the fields of the kubeconfig Secret.
pub(super) fn fields(aws: &AwsConfig) -> [(&'static str, &str); 5] {
    [
        (ACCESS_KEY_ID, &aws.aws_access_key_id),
        (SECRET_ACCESS_KEY, &aws.aws_secret_access_key),
        (REGION, &aws.aws_region),
        (CLUSTER, &aws.aws_cluster_name),
        (USER_ARN, &aws.aws_user_arn),
    ]
}

/// Returns the credentials in a kubeconfig Secret; `None` if it has no access key.
///
/// # Errors
///
/// Returns the field that is missing.
pub(crate) fn in_secret(secret: &Secret) -> Result<Option<EksCredentials<'_>>, String> {
    let data = secret.data.as_ref();
    let field = |name: &str| {
        let value = data.and_then(|data| data.get(name));
        let text = value.and_then(|value| std::str::from_utf8(&value.0).ok());
        text.ok_or_else(|| format!("data.{name} is missing or no text"))
    };
    if !data.is_some_and(|data| data.contains_key(ACCESS_KEY_ID)) {
        return Ok(None);
    }

    Ok(Some(EksCredentials {
        access_key_id: field(ACCESS_KEY_ID)?,
        secret_access_key: field(SECRET_ACCESS_KEY)?,
        region: field(REGION)?,
        cluster: field(CLUSTER)?,
    }))
}

//! API group `authentication.liqo.io`.

pub use identity::{Identity, IdentitySpec, IdentityStatus};
pub use renew::{Renew, RenewSpec, RenewStatus};
pub use resource_slice::{ResourceSlice, ResourceSliceSpec, ResourceSliceStatus};
pub use tenant::{Tenant, TenantSpec, TenantStatus};
pub use tenant_policy::{TenantPolicy, TenantPolicySpec};

pub mod auth_params;
pub mod identity;
pub mod renew;
pub mod resource_slice;
pub mod tenant;
pub mod tenant_policy;

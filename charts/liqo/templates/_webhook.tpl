{{/*
Returns the fields that all webhooks have. `caBundle` is missing, because the controller manager writes it. Takes a dict:
root, path, failurePolicy, timeoutSeconds.
*/}}
{{- define "liqo.webhook" -}}
clientConfig:
  service:
    name: liqo-webhook
    namespace: {{ .root.Release.Namespace }}
    path: {{ .path }}
    port: 9443
admissionReviewVersions: [v1, v1beta1]
failurePolicy: {{ .failurePolicy }}
matchPolicy: Equivalent
sideEffects: None
timeoutSeconds: {{ .timeoutSeconds }}
{{- end }}

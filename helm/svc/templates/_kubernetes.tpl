{{/* Access to the Kubernetes API: of the operator, and of the services that verify service account tokens. */}}

{{/* "true" if the component asks the API server to verify tokens (TokenReview): identity and session those of the operator, ingest those
     of producers. */}}
{{- define "svc.reviewsTokens" -}}
{{- $values := .root.Values -}}
{{- if or $values.operator.enabled (and $values.workloadIdentity.enabled (eq .component "ingest")) -}}true{{- end -}}
{{- end -}}

{{/* "true" if the operator manages consumers: it calls ingest, and writes Secrets in all namespaces. */}}
{{- define "svc.managesConsumers" -}}
{{- if and (include "svc.installed" (dict "root" . "component" "operator")) .Values.operator.consumers.enabled -}}true{{- end -}}
{{- end -}}

{{/* The token for the API server, its CA and the namespace, as every client of Kubernetes expects them. */}}
{{- define "svc.kubernetesApi.volume" -}}
name: kubernetes-api
projected:
  defaultMode: 0440
  sources:
    - serviceAccountToken: {path: token, expirationSeconds: 3600}
    - configMap:
        name: kube-root-ca.crt
        items: [{key: ca.crt, path: ca.crt}]
    - downwardAPI:
        items: [{path: namespace, fieldRef: {fieldPath: metadata.namespace}}]
{{- end -}}

{{- define "svc.kubernetesApi.mount" -}}
name: kubernetes-api
mountPath: /var/run/secrets/kubernetes.io/serviceaccount
readOnly: true
{{- end -}}

{{/* Makes an existing service account the owner of a Job: Helm forgets the Jobs of a failed upgrade, and Kubernetes deletes them with the
     account, after `helm uninstall`. Empty at a first installation: Helm knows its Jobs. Takes "root" and "account". */}}
{{- define "svc.owner" -}}
{{- with lookup "v1" "ServiceAccount" .root.Release.Namespace .account -}}
ownerReferences:
  - {apiVersion: v1, kind: ServiceAccount, name: {{ .metadata.name | quote }}, uid: {{ .metadata.uid | quote }}}
{{- end -}}
{{- end -}}

{{/* The subject of a binding: the service account of a component. */}}
{{- define "svc.subject" -}}
kind: ServiceAccount
name: {{ include "svc.name" . }}
namespace: {{ .root.Release.Namespace | quote }}
{{- end -}}

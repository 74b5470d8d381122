{{/* Pods of `helm test`: the client `svc`, which calls the services through the ingress. */}}

{{- define "svc.clientImage" -}}
{{- include "svc.imageReference" (dict "root" . "image" .Values.tests.image "name" "svc") -}}
{{- end -}}

{{/* "true" if the services can be called through a route. */}}
{{- define "svc.tests.ingress" -}}
{{- if and .Values.enabled .Values.ingest.enabled (or .Values.ingress.enabled .Values.gateway.enabled .Values.tests.baseUrl) -}}true{{- end -}}
{{- end -}}

{{- define "svc.test.metadata" -}}
name: {{ include "svc.fullname" .root }}-test-{{ .test }}
namespace: {{ .root.Release.Namespace | quote }}
{{- $hook := dict "helm.sh/hook" "test" "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
{{ include "svc.podMetadata" (dict "root" .root "component" "test" "own" .root.Values.tests "annotations" $hook) }}
{{- end -}}

{{/* Files of the volume `secrets`, as a JSON list for `svc.secretVolume`: the CA of the address. */}}
{{- define "svc.test.files" -}}
{{- include "svc.tlsFiles" (dict "ca" .Values.tests.ca "certificate" "" "directory" "tls") -}}
{{- end -}}

{{- define "svc.test.pod" -}}
{{ include "svc.pod.base" (dict "root" .) }}
restartPolicy: Never
{{- with .Values.tests.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "svc.test.container" -}}
image: {{ include "svc.clientImage" . | quote }}
resources:
  {{- toYaml .Values.tests.resources | nindent 2 }}
{{ include "svc.container.base" (dict "root" .) }}
{{- end -}}

{{- define "svc.test.env" -}}
- name: SVC_BASE_URL
  value: {{ default (include "svc.publicUrl" .) .Values.tests.baseUrl | quote }}
- name: HOME
  value: /home
- name: CI
  value: "true"
{{- if include "svc.test.files" . | fromJsonArray }}
- name: SVC_CA_FILE
  value: /etc/svc/secrets/tls/ca.crt
{{- end }}
{{- end -}}

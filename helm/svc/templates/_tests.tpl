{{/* Pods of `helm test`: the client `svc`, which calls the services through the ingress. */}}

{{- define "svc.clientImage" -}}
{{ trimSuffix "/" .Values.image.registry }}/svc:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}

{{- define "svc.test.metadata" -}}
name: {{ include "svc.fullname" .root }}-test-{{ .test }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "svc.podLabels" (dict "root" .root "component" "test") | nindent 2 }}
annotations:
  helm.sh/hook: test
  helm.sh/hook-delete-policy: before-hook-creation
{{- end -}}

{{- define "svc.test.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
restartPolicy: Never
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tests.hostAliases }}
hostAliases:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "svc.test.container" -}}
image: {{ include "svc.clientImage" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  requests: {cpu: 10m, memory: 32Mi}
  limits: {memory: 128Mi}
{{ include "svc.container.base" . }}
{{- end -}}

{{- define "svc.test.env" -}}
- name: SVC_BASE_URL
  value: {{ default .Values.publicUrl .Values.tests.baseUrl | quote }}
- name: HOME
  value: /home
- name: CI
  value: "true"
{{- end -}}

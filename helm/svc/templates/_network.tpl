{{/* Services, service accounts and network policies of a component. */}}

{{- define "svc.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
  {{- with (index .root.Values .component).serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end -}}

{{- define "svc.service" -}}
apiVersion: v1
kind: Service
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
  {{- with (index .root.Values .component).service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: ClusterIP
  selector:
    {{- include "svc.selector" . | nindent 4 }}
  ports:
    - name: http
      port: 8080
      targetPort: public
      appProtocol: http
{{- end -}}

{{/* The internal API has a separate Service, so that a route with a wrong port cannot reach it. */}}
{{- define "svc.internalService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "svc.name" . }}-internal
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "svc.labels" . | nindent 4 }}
spec:
  type: ClusterIP
  selector:
    {{- include "svc.selector" . | nindent 4 }}
  ports:
    - name: http
      port: 8081
      targetPort: internal
      appProtocol: http
{{- end -}}

{{/* Pods of the release that call the public port of this component, as a JSON list. */}}
{{- define "svc.publicCallers" -}}
{{- $callers := list "test" -}}
{{- if include "svc.trial.proxy" .root -}}{{- $callers = append $callers "trial-proxy" -}}{{- end -}}
{{- if and (include "svc.trial" .root) (eq .component "identity") -}}{{- $callers = append $callers "trial-tenant" -}}{{- end -}}
{{- toJson $callers -}}
{{- end -}}

{{/* Components that call the internal API of this component. */}}
{{- define "svc.internalCallers" -}}
{{- $callers := get (dict "identity" (list "session") "session" (list "identity" "ingest") "ingest" list) .component -}}
{{- if ternary (include "svc.managesConsumers" .root) .root.Values.operator.enabled (eq .component "ingest") -}}{{- $callers = append $callers "operator" -}}{{- end -}}
{{- toJson $callers -}}
{{- end -}}

{{- define "svc.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
{{- $callers := include "svc.internalCallers" . | fromJsonArray -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "svc.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "svc.selector" . | nindent 6 }}
  policyTypes: [Ingress{{ if $policy.egress.enabled }}, Egress{{ end }}]
  ingress:
    - ports:
        - port: public
      {{- with $policy.publicFrom }}
      from:
        {{- toYaml . | nindent 8 }}
        {{- range include "svc.publicCallers" $ | fromJsonArray }}
        - podSelector:
            matchLabels:
              {{- include "svc.selector" (dict "root" $.root "component" .) | nindent 14 }}
        {{- end }}
      {{- end }}
    {{- with $callers }}
    - ports:
        - port: internal
      from:
        {{- range . }}
        - podSelector:
            matchLabels:
              {{- include "svc.selector" (dict "root" $.root "component" .) | nindent 14 }}
        {{- end }}
        {{- with get ($policy.internalFrom | default dict) $.component }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    {{- end }}
    {{- with $policy.adminFrom }}
    - ports:
        - port: admin
      from:
        {{- toYaml . | nindent 8 }}
    {{- end }}
  {{- if $policy.egress.enabled }}
  egress:
    {{- include "svc.egress.dns" .root | nindent 4 }}
    - ports:
        - port: internal
      to:
        - podSelector:
            matchLabels:
              {{- include "svc.selector" (dict "root" .root "component" (ternary "identity" "session" (eq .component "session"))) | nindent 14 }}
    {{- toYaml $policy.egress.nats | nindent 4 }}
    {{- if ne .component "ingest" }}
    {{- toYaml $policy.egress.database | nindent 4 }}
    {{- end }}
    {{- if and (eq .component "identity") .root.Values.mail.existingSecret }}
    {{- toYaml $policy.egress.mail | nindent 4 }}
    {{- end }}
    {{- if include "svc.reviewsTokens" . }}
    {{- toYaml $policy.egress.kubernetes | nindent 4 }}
    {{- end }}
    {{- if .root.Values.monitoring.traces.endpoint }}
    {{- toYaml $policy.egress.traces | nindent 4 }}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* A policy applies to the port of the pod, not of the Service. */}}
{{- define "svc.egress.dns" -}}
- ports:
    {{- range concat .Values.networkPolicy.egress.dnsPorts (ternary (list 5353) list .Values.openshift) }}
    - {port: {{ toJson . }}, protocol: UDP}
    - {port: {{ toJson . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* Pods of a migration accept no connections. */}}
{{- define "svc.migrationNetworkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "svc.name" . }}-migration
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "svc.labels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
spec:
  podSelector:
    matchLabels:
      {{- include "svc.selector" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 6 }}
  policyTypes: [Ingress{{ if $policy.egress.enabled }}, Egress{{ end }}]
  {{- if $policy.egress.enabled }}
  egress:
    {{- include "svc.egress.dns" .root | nindent 4 }}
    {{- toYaml $policy.egress.database | nindent 4 }}
  {{- end }}
{{- end -}}

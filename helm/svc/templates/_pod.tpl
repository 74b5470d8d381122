{{/* Parts that all pods of the chart share. */}}

{{/* First part of every pod spec; takes (dict "root" $), and optionally "serviceAccount" with the name of one, "own" with the values of the
     component, and "user" with the id that the image requires. */}}
{{- define "svc.pod.base" -}}
{{- $values := .root.Values -}}
{{- $own := default dict .own -}}
{{- $user := ternary (dict "runAsUser" .user "runAsGroup" .user "fsGroup" .user) dict (hasKey . "user") -}}
{{- $context := $values.podSecurityContext -}}
{{- if $values.openshift -}}{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}{{- end -}}
{{- with .serviceAccount -}}
serviceAccountName: {{ . | quote }}
{{ end -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- $pullSecrets := list }}
{{- range concat (dig "imagePullSecrets" list $values.global) $values.imagePullSecrets }}
{{- if kindIs "map" . }}{{ $pullSecrets = append $pullSecrets .name }}{{ else }}{{ $pullSecrets = append $pullSecrets . }}{{ end }}
{{- end }}
{{- with uniq $pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
securityContext:
  {{- toYaml (merge $user $context) | nindent 2 }}
{{- with merge dict (default dict $own.nodeSelector) $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with concat (default list $own.tolerations) $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $own.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Settings of every container. `kubectl describe pod` shows the last log lines of a failed container. */}}
{{- define "svc.container.base" -}}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
terminationMessagePolicy: FallbackToLogsOnError
securityContext:
  {{- toYaml .root.Values.securityContext | nindent 2 }}
{{- end -}}

{{/* Mounts of every container of a component. */}}
{{- define "svc.container.mounts" -}}
- name: secrets
  mountPath: /etc/svc/secrets
  readOnly: true
{{- with (index .root.Values .component).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The spread of the pods of a Deployment. */}}
{{- define "svc.pod.spread" -}}
{{- $own := index .root.Values .component -}}
topologySpreadConstraints:
{{- if $own.topologySpreadConstraints }}
  {{- toYaml $own.topologySpreadConstraints | nindent 2 }}
{{- else }}
  {{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - maxSkew: 1
    topologyKey: {{ $key }}
    whenUnsatisfiable: ScheduleAnyway
    # Count only pods of the same revision. Older ones are being replaced.
    matchLabelKeys: [pod-template-hash]
    labelSelector:
      matchLabels:
        {{- include "svc.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "svc.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 3
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 2
{{- end -}}

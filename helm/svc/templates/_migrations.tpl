{{/* The Job that migrates the schema of a component. A Job is immutable, so its name contains a digest of its spec: a new
     image creates a new Job, and the same release keeps its Job. It is not a hook: hooks run before the Secrets and policies
     of a first installation, and GitOps tools handle them differently. */}}

{{- define "svc.migration.pod" -}}
metadata:
  labels:
    {{- include "svc.podLabels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
  {{- with .root.Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- include "svc.pod.base" (dict "root" .root "serviceAccount" (include "svc.name" .)) | nindent 2 }}
  restartPolicy: Never
  containers:
    - name: migrate
      image: {{ include "svc.image" . }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      args: [migrate, up]
      env:
        - name: SVC_MIGRATOR_DATABASE_URL_FILE
          value: /etc/svc/secrets/{{ .root.Values.database.existingSecret }}/{{ .component }}-migrator-url
      resources:
        {{- toYaml .root.Values.migrations.resources | nindent 8 }}
      {{- include "svc.container.base" . | nindent 6 }}
      volumeMounts:
        - name: secrets
          mountPath: /etc/svc/secrets
          readOnly: true
  {{- $placement := index .root.Values .component }}
  {{- with $placement.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $placement.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - {{ include "svc.secretVolume" (list (dict "secret" .root.Values.database.existingSecret "key" (printf "%s-migrator-url" .component))) | nindent 6 | trim }}
{{- end -}}

{{- define "svc.migration" -}}
{{- $pod := include "svc.migration.pod" . -}}
{{- $spec := printf "%v\n%s" .root.Values.migrations.activeDeadlineSeconds $pod -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "svc.name" . }}-migrate-{{ $spec | sha256sum | trunc 10 }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "svc.labels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
spec:
  activeDeadlineSeconds: {{ .root.Values.migrations.activeDeadlineSeconds }}
  # With exponential back-off, this is long enough for a database to start.
  backoffLimit: 8
  podFailurePolicy:
    rules:
      # Exit code 64 is a configuration error. A retry would fail too.
      - action: FailJob
        onExitCodes:
          containerName: migrate
          operator: In
          values: [64]
      # Evicted by the cluster.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    {{- $pod | nindent 4 }}
{{- end -}}

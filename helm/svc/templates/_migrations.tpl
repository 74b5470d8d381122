{{/* The Job that migrates the schema of a component. A Job is immutable, so its name contains a digest of its spec, and of the
     revision: each upgrade runs the migrations again, also after a failure with equal values. For tools that render without
     Helm's revision, only a changed spec creates a new Job. It is not a hook: hooks run before the Secrets and policies of a
     first installation, and GitOps tools handle them differently.

     A Job with the same name can be left from a failed upgrade before `helm uninstall`: Helm deletes only the objects of the last
     revision, and a new installation begins with revision 1. Helm would take it for the new one. Then the digest contains its uid.

     Jobs of an abandoned upgrade stay, and can start later, for example when their image appears. So a ConfigMap has the name of the current
     Job. kubelet reads it after the image is there, when it starts the container, and `migrate up` compares both names. */}}

{{- define "svc.migration.pod" -}}
{{- $own := index .root.Values .component -}}
{{- /* Rules about other pods are for the pods of the Deployment: one that keeps them apart could leave no node for the Job. */ -}}
{{- $scheduling := set (omit $own "affinity") "affinity" (pick (default dict $own.affinity) "nodeAffinity") -}}
{{- $role := printf "%sMigrator" .component -}}
{{- $database := include "svc.database" (dict "root" .root "component" .component "role" $role) | fromJson -}}
metadata:
  {{- include "svc.podMetadata" (dict "root" .root "component" (printf "%s-migration" .component) "own" .root.Values.migrations) | nindent 2 }}
spec:
  {{- include "svc.pod.base" (dict "root" .root "own" $scheduling "serviceAccount" (include "svc.name" .)) | nindent 2 }}
  restartPolicy: Never
  {{- with $own.extraInitContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: migrate
      image: {{ include "svc.image" . | quote }}
      args: [migrate, up, --job, $(JOB), --current-job, $(CURRENT_JOB)]
      env:
        - name: JOB
          valueFrom: {fieldRef: {fieldPath: "metadata.labels['batch.kubernetes.io/job-name']"}}
        - name: CURRENT_JOB
          valueFrom: {configMapKeyRef: {name: {{ include "svc.migration.currentJob" . }}, key: job}}
        {{- include "svc.plainEnv" $database.env | trim | nindent 8 }}
        {{- with $own.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      resources:
        {{- toYaml .root.Values.migrations.resources | nindent 8 }}
      {{- include "svc.container.base" . | nindent 6 }}
      volumeMounts:
        {{- include "svc.container.mounts" . | nindent 8 }}
  volumes:
    - {{ include "svc.secretVolume" $database.files | nindent 6 | trim }}
    {{- with $own.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "svc.migration.currentJob" -}}
{{- printf "%s-migration" (include "svc.name" .) -}}
{{- end -}}

{{- define "svc.migration" -}}
{{- $pod := include "svc.migration.pod" . -}}
{{- $spec := printf "%v %v\n%s" .root.Release.Revision .root.Values.migrations.activeDeadlineSeconds $pod -}}
{{- $prefix := printf "%s-migrate" (include "svc.name" .) -}}
{{- $name := printf "%s-%s" $prefix ($spec | sha256sum | trunc 10) -}}
{{- with lookup "batch/v1" "Job" .root.Release.Namespace $name }}
  {{- $name = printf "%s-%s" $prefix (printf "%s %s" .metadata.uid $spec | sha256sum | trunc 10) }}
{{- end -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "svc.migration.currentJob" . }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "svc.labels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
data:
  job: {{ $name }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace | quote }}
  {{- include "svc.owner" (dict "root" .root "account" (include "svc.name" .)) | nindent 2 }}
  labels:
    {{- include "svc.labels" (dict "root" .root "component" (printf "%s-migration" .component)) | nindent 4 }}
spec:
  activeDeadlineSeconds: {{ .root.Values.migrations.activeDeadlineSeconds | toJson }}
  {{- with .root.Values.migrations.ttlSecondsAfterFinished }}
  ttlSecondsAfterFinished: {{ . | toJson }}
  {{- end }}
  # For failed migrations. `migrate up` itself waits for the database.
  backoffLimit: 8
  podFailurePolicy:
    rules:
      # Exit code 64 is a configuration error. A retry would fail too.
      - action: FailJob
        onExitCodes:
          containerName: migrate
          operator: In
          values: [64]
      # Exit code 75: the migration waited so long that it must read again which Job is the current one.
      - action: Ignore
        onExitCodes:
          containerName: migrate
          operator: In
          values: [75]
      # Evicted by the cluster.
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
            status: "True"
  template:
    {{- $pod | nindent 4 }}
{{- end -}}

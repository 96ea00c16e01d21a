// Finds the language server binary and makes the client for it.
import * as fs from 'fs';
import * as path from 'path';
import * as vscode from 'vscode';
import { LanguageClient, LanguageClientOptions, ServerOptions } from 'vscode-languageclient/node';

/** Path of flagos-lsp: the setting if given, else the packaged one. Throws a sentence a user can act on. */
export function serverPath(context: vscode.ExtensionContext): string {
  const configured = vscode.workspace.getConfiguration('flagos').get<string>('server.path', '').trim();
  const file = configured || path.join(context.extensionPath, 'bin', 'flagos-lsp');
  if (!fs.existsSync(file)) {
    throw new Error(configured
      ? `flagos.server.path names ${file}, which does not exist. Correct or clear the setting.`
      : `${file} is missing: this package holds no language server for this system. Set flagos.server.path.`);
  }
  try {
    fs.accessSync(file, fs.constants.X_OK);
  } catch {
    // Unpacking a .vsix may lose the executable bit.
    fs.chmodSync(file, 0o755);
  }
  return file;
}

export function makeClient(context: vscode.ExtensionContext, log: vscode.OutputChannel): LanguageClient {
  const command = serverPath(context);
  const server: ServerOptions = { command, args: ['--stdio'] };
  const client: LanguageClientOptions = {
    documentSelector: [
      { scheme: 'file', language: 'python' },
      { scheme: 'untitled', language: 'python' },
      { scheme: 'vscode-notebook-cell', language: 'python' },
    ],
    outputChannel: log,
    initializationOptions: { devices: vscode.workspace.getConfiguration('flagos').get<string[]>('devices', []) },
    synchronize: { configurationSection: 'flagos' },
  };
  return new LanguageClient('flagos', 'FlagOS', server, client);
}
